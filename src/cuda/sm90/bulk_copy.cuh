// Bulk copies to shared memory and the barriers on which they arrive (compute capability 9.0).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/tensor_core.cuh"

namespace vireo::cuda {

struct Barrier {
  uint64_t state;
};
// Its place in shared memory: worked out once, for loops.
using BarrierAddress = uint32_t;

__device__ __forceinline__ void start_barrier(BarrierAddress b, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(arrivals) : "memory");
}

// Barriers that were started are seen by copies and, after a __syncthreads, by the block.
__device__ __forceinline__ void publish_barriers() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

__device__ __forceinline__ void arrive(BarrierAddress b) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(b) : "memory");
}

// Arrives, and lets the phase end only after this many bytes were copied.
__device__ __forceinline__ void expect_bytes(BarrierAddress b, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(b), "r"(bytes)
               : "memory");
#endif
}

// Waits until the phase of this parity has ended.
__device__ __forceinline__ void wait_for(BarrierAddress b, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(b),
      "r"(parity)
      : "memory");
#endif
}

// Copies that this thread sends for from here on come after what it read and wrote in shared memory.
__device__ __forceinline__ void order_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// How L2 keeps what is read once a step, such as weights: not for long, so that what is small and read by all stays there. Else every
// norm and table would come from memory again, behind the weights that queue there.
__device__ __forceinline__ uint64_t read_once() {
  uint64_t policy = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
  return policy;
}

// To L2, a multiple of 16 bytes from a multiple of 16.
__device__ __forceinline__ void prefetch_bulk(const void* from, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

// `bytes` is a multiple of 16, both addresses too.
__device__ __forceinline__ void copy_bulk(uint32_t to, const void* from, uint32_t bytes, BarrierAddress arrived,
                                          uint64_t policy) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(arrived), "l"(policy)
      : "memory");
#endif
}

// A box of a tensor map at (column, head, row) to shared memory, a multiple of 1024 where the map swizzles.
__device__ __forceinline__ void copy_box(uint32_t to, const void* map, int column, int head, int row,
                                         BarrierAddress arrived) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(to),
      "l"(map), "r"(column), "r"(head), "r"(row), "r"(arrived)
      : "memory");
#endif
}

}  // namespace vireo::cuda
