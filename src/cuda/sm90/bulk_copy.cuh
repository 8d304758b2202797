// Bulk copies to shared memory and the barriers on which they arrive (compute capability 9.0).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/tensor_core.cuh"

namespace vireo::cuda {

struct Barrier {
  uint64_t state;
};

__device__ __forceinline__ void start_barrier(Barrier& b, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&b)), "r"(arrivals) : "memory");
}

// Barriers that were started are seen by copies and, after a __syncthreads, by the block.
__device__ __forceinline__ void publish_barriers() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

__device__ __forceinline__ void arrive(Barrier& b) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(shared_address(&b)) : "memory");
}

// Arrives, and lets the phase end only after this many bytes were copied.
__device__ __forceinline__ void expect_bytes(Barrier& b, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(shared_address(&b)),
               "r"(bytes)
               : "memory");
#endif
}

// Waits until the phase of this parity has ended.
__device__ __forceinline__ void wait_for(Barrier& b, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(shared_address(&b)),
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

// `bytes` is a multiple of 16, both addresses too.
__device__ __forceinline__ void copy_bulk(uint32_t to, const void* from, uint32_t bytes, Barrier& arrived) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(bytes), "r"(shared_address(&arrived))
               : "memory");
#endif
}

}  // namespace vireo::cuda
