// What all kernels share: bf16 in registers, 16-byte loads that leave the caches to others, sums over a warp and a block, and
// the two ends of a programmatic dependent launch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "base/dtype.h"

namespace vireo::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// Before it a kernel may read only what no kernel of the same step writes; after it everything before is done.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel of the stream may take its place on the multiprocessors and run up to its own wait.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ float load_float(const float* p) {
  return *p;
}
__device__ __forceinline__ float load_float(const bf16* p) {
  return __uint_as_float(static_cast<uint32_t>(p->bits) << 16);
}
__device__ __forceinline__ uint16_t bf16_bits(float v) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(v));
}
__device__ __forceinline__ void store_float(float* p, float v) {
  *p = v;
}
__device__ __forceinline__ void store_float(bf16* p, float v) {
  p->bits = bf16_bits(v);
}
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(v);
}
__device__ __forceinline__ float low_bf16(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_bf16(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

// Read once, not kept in L1: weights, keys and values.
__device__ __forceinline__ uint4 load_stream(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// Through L2, for what kernels of earlier steps wrote.
__device__ __forceinline__ int32_t load_index(const int32_t* p) {
  int32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

// Makes the compiler have the value in a register here, instead of reading it again where it is used.
__device__ __forceinline__ void keep_in_registers(int& v) {
  asm volatile("" : "+r"(v));
}
__device__ __forceinline__ void keep_in_registers(uint32_t& v) {
  asm volatile("" : "+r"(v));
}
__device__ __forceinline__ void keep_in_registers(int64_t& v) {
  asm volatile("" : "+l"(v));
}
template <typename T>
__device__ __forceinline__ void keep_in_registers(T*& p) {
  asm volatile("" : "+l"(p));
}

// Adds for all to see, after what this thread, and what met it at a barrier, wrote; what it reads afterwards is what others wrote
// before they added.
__device__ __forceinline__ int32_t add_in_order(int32_t* p, int32_t v) {
  int32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;" : "=r"(before) : "l"(p), "r"(v) : "memory");
  return before;
}

// What `source` has at index_of(0 to kCount - 1): begin() sends for it, is_there() tells whether what came is it. All loads are on their way
// together, and again those that were too early.
template <int kCount, typename Source, typename Index>
__device__ __forceinline__ void send_for(const Source& source, Index index_of, typename Source::Raw (&raw)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) raw[i] = source.begin(index_of(i));
}
template <int kCount, typename Source, typename Index>
__device__ __forceinline__ void receive(const Source& source, Index index_of, typename Source::Raw (&raw)[kCount]) {
  const auto all = [&] {
    bool there = true;
#pragma unroll
    for (int i = 0; i < kCount; ++i) there &= source.is_there(raw[i]);
    return there;
  };
  while (!all()) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (!source.is_there(raw[i])) raw[i] = source.begin(index_of(i));
    }
  }
}
template <int kCount, typename Source, typename Index>
__device__ __forceinline__ void fetch(const Source& source, Index index_of, typename Source::Raw (&raw)[kCount]) {
  send_for(source, index_of, raw);
  receive(source, index_of, raw);
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(kAllLanes, v, offset);
  return v;
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, offset));
  return v;
}

// The sum over all threads of a block of whole warps, the same in every thread. May be called again at once.
__device__ __forceinline__ float block_sum(float v) {
  __shared__ float sums[32];
  v = warp_sum(v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v;
  __syncthreads();
  return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? sums[threadIdx.x % 32] : 0.0f);
}

__device__ __forceinline__ float silu(float x) {
  return __fdividef(x, 1.0f + __expf(-x));
}
__device__ __forceinline__ float gelu_tanh(float x) {
  const float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  // tanh(u) = 1 - 2 / (exp(2 u) + 1), exact at both ends.
  return 0.5f * x * (2.0f - 2.0f / (__expf(2.0f * u) + 1.0f));
}
__device__ __forceinline__ float gelu_erf(float x) {
  return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
}

}  // namespace vireo::cuda
