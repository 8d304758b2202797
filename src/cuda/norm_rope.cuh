// Norm and rotation of one head by one warp, the same code and so the same bits wherever it is used.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/device.cuh"
#include "ops/step.h"

namespace vireo::cuda {

inline constexpr int kMaxPairs = 2;  // pairs of a head per lane: head_dim up to 128

// Pair i * 32 + lane of the head: elements j and j + head_dim / 2.
struct HeadPairs {
  float low[kMaxPairs], high[kMaxPairs];
};

// A head, or a norm's weights of one: nothing that a step changes, so those may be read before the wait.
template <typename T>
__device__ __forceinline__ HeadPairs load_head(const T* from, int head_dim) {
  const int n = head_dim / 2, lane = threadIdx.x % 32;
  HeadPairs p;
#pragma unroll
  for (int i = 0; i < kMaxPairs; ++i) {
    const int j = i * 32 + lane;
    p.low[i] = j < n ? load_float(from + j) : 0;
    p.high[i] = j < n ? load_float(from + n + j) : 0;
  }
  return p;
}

// Elements of a head that lies in memory, a source as fetch() reads it.
struct PlainHead {
  const bf16* head;
  using Raw = float;
  __device__ __forceinline__ Raw begin(int j) const { return load_float(head + j); }
  __device__ __forceinline__ bool is_there(Raw) const { return true; }
  __device__ __forceinline__ float value(Raw raw, int) const { return raw; }
};

// What turns the pairs of a lane. `cos_sin` is the row's: head_dim / 2 cosines, then as many sines.
struct HeadAngles {
  float cosine[kMaxPairs], sine[kMaxPairs];
};
__device__ __forceinline__ HeadAngles head_angles(const float* cos_sin, int head_dim) {
  const int n = head_dim / 2, lane = threadIdx.x % 32;
  HeadAngles a;
#pragma unroll
  for (int i = 0; i < kMaxPairs; ++i) {
    const int j = i * 32 + lane;
    a.cosine[i] = j < n ? cos_sin[j] : 0;
    a.sine[i] = j < n ? cos_sin[n + j] : 0;
  }
  return a;
}

// In float32 from end to end.
template <typename Head>
__device__ __forceinline__ HeadPairs norm_rope(const Head& head, const HeadPairs& weight, float eps,
                                               const HeadAngles& angles, int head_dim) {
  const int n = head_dim / 2, lane = threadIdx.x % 32;
  HeadPairs p;
  // Low and high elements; lanes behind the end read the last.
  typename Head::Raw raw[2 * kMaxPairs];
  const auto element = [&](int i) { return i % 2 * n + min(i / 2 * 32 + lane, n - 1); };
  float squares = 0;
  fetch(head, element, raw);
#pragma unroll
  for (int i = 0; i < kMaxPairs; ++i) {
    const bool inside = i * 32 + lane < n;
    p.low[i] = inside ? head.value(raw[2 * i], element(2 * i)) : 0;
    p.high[i] = inside ? head.value(raw[2 * i + 1], element(2 * i + 1)) : 0;
  }
#pragma unroll
  for (int i = 0; i < kMaxPairs; ++i) squares += p.low[i] * p.low[i] + p.high[i] * p.high[i];
  const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(head_dim) + eps);
#pragma unroll
  for (int i = 0; i < kMaxPairs; ++i) {
    const float x = weight.low[i] * (p.low[i] * scale), y = weight.high[i] * (p.high[i] * scale);
    p.low[i] = x * angles.cosine[i] - y * angles.sine[i];
    p.high[i] = y * angles.cosine[i] + x * angles.sine[i];
  }
  return p;
}

__device__ __forceinline__ void store_head(const HeadPairs& p, int head_dim, bf16* to) {
  const int n = head_dim / 2, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kMaxPairs; ++i) {
    const int j = i * 32 + lane;
    if (j >= n) continue;
    store_float(to + j, p.low[i]);
    store_float(to + n + j, p.high[i]);
  }
}

// Where a token's row of one KV head lies in a cache of pages.
__device__ __forceinline__ int64_t cache_row(int64_t page, int token, int kv_head, int kv_heads, int head_dim) {
  return ((page * kv_heads + kv_head) * kPageTokens + token) * head_dim;
}

}  // namespace vireo::cuda
