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

template <typename... Parameters, typename... Arguments>
void launch(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            Arguments&&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = queue.stream;
  // All kernels ask for the same division between L1 and shared memory: a multiprocessor that has to change it first waits until
  // it is empty, and no kernel could start early.
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  attributes[0].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attributes;
  config.numAttrs = queue.early_start ? 2 : 1;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, Parameters(std::forward<Arguments>(arguments))...));
}

}  // namespace vireo::cuda
