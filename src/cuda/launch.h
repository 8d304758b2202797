// How kernels are launched: every launch is checked, and where the device has it, a kernel may start before the one ahead of
// it ends (it must then call wait_for_previous before it reads what the step computes).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "cuda/cuda_error.h"

namespace vireo::cuda {

// Where and how an op's kernels run.
struct Queue {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
  bool early_start = false;           // programmatic dependent launch
  bool bulk_copies = false;           // copies to shared memory that complete on a barrier
  bool warpgroups = false;            // products of warpgroups (9.0 alone)
  int block_shared_bytes = 48 << 10;  // the most dynamic shared memory of one block
};

// Lets one kernel have this much dynamic shared memory; asked once per device.
class SharedMemory {
 public:
  void allow(const void* kernel, int bytes) {
    int device = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    const uint64_t bit = uint64_t{1} << device % 64;
    if (allowed_.load(std::memory_order_relaxed) & bit) return;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    allowed_.fetch_or(bit);
  }

 private:
  std::atomic<uint64_t> allowed_{0};  // by device
};

// All kernels ask for the same division between L1 and shared memory: a multiprocessor that has to change it first waits until it is
// empty, and no kernel could start early.
template <typename... Parameters, typename... Arguments>
void launch_with(cudaLaunchAttribute order, const Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                 size_t shared_bytes, Arguments&&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = queue.stream;
  cudaLaunchAttribute attributes[2] = {{}, order};
  attributes[0].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  attributes[0].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  config.attrs = attributes;
  config.numAttrs = order.id == cudaLaunchAttributeIgnore ? 1 : 2;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, Parameters(std::forward<Arguments>(arguments))...));
}

template <typename... Parameters, typename... Arguments>
void launch(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            Arguments&&... arguments) {
  cudaLaunchAttribute order = {};
  if (queue.early_start) {
    order.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    order.val.programmaticStreamSerializationAllowed = 1;
  }
  launch_with(order, queue, kernel, grid, block, shared_bytes, std::forward<Arguments>(arguments)...);
}

// All blocks run at the same time, or the launch fails: they may wait for each other.
template <typename... Parameters, typename... Arguments>
void launch_together(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                     Arguments&&... arguments) {
  cudaLaunchAttribute order = {};
  order.id = cudaLaunchAttributeCooperative;
  order.val.cooperative = 1;
  launch_with(order, queue, kernel, grid, block, shared_bytes, std::forward<Arguments>(arguments)...);
}

}  // namespace vireo::cuda
