// What the kernels of decode attention over bulk copies share: how a warp's keys and values lie in shared memory, and what becomes of
// them (compute capability 9.0).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/attend_parts.cuh"
#include "cuda/kernels.h"
#include "cuda/norm_rope.cuh"
#include "cuda/sm90/bulk_copy.cuh"

namespace vireo::cuda {

inline constexpr int kPartWarps = 8, kWarpTokens = kSplitTokens / kPartWarps;  // of a part; 16 keys, then 16 values
inline constexpr int kGroupHeads = 8;                                          // most heads of a KV head
static_assert(kWarpTokens == 16);

// A warp's tokens in shared memory, head_dim kDim.
template <int kDim>
struct WarpTile {
  static constexpr int kPitch = kDim * 2 + 16;  // bytes from a token to the next: ldmatrix meets no bank twice
  static constexpr int kBytes = 2 * kWarpTokens * kPitch;
  static constexpr int kPart = kDim + 2;  // of a head: sums of weight * value, the largest score, the sum of weights
  // The warp's parts lie where its keys were.
  static_assert(kGroupHeads * kPart * 4 <= kBytes / 2);
};

// The group's queries as a warp's operand: lane / 4 is the head.
template <int kDim>
[[maybe_unused]] __device__ __forceinline__ void load_queries(uint4 (&q)[kDim / 32], const bf16* queries, int group) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kDim / 32; ++j) {
    const bf16* from = queries + lane / 4 * kDim + j * 32 + lane % 4 * 8;
    q[j] = lane / 4 < group ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
  }
}

// `tokens` of a warp's 16 for up to 8 heads: lane / 4 is the head. Its sums, the largest score and the sum of weights go to `part`, the
// head's, which lies where the warp's keys were.
template <int kDim>
[[maybe_unused]] __device__ __forceinline__ void attend_warp(const uint4 (&q)[kDim / 32], uint32_t keys, int tokens,
                                                             int heads, float scale, float* part) {
  constexpr int kPitch = WarpTile<kDim>::kPitch;
  const int lane = threadIdx.x % 32;
  float scores[2][4] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < kDim / 32; ++j) {
      const uint4 k = load_shared(keys + (half * 8 + lane / 4) * kPitch + j * 64 + lane % 4 * 16);
      multiply_add(scores[half], {q[j].x, 0, q[j].y, 0}, k.x, k.y);
      multiply_add(scores[half], {q[j].z, 0, q[j].w, 0}, k.z, k.w);
    }
  }
  const WarpWeights weights = soften(scores, tokens, scale);
  const uint32_t values = keys + kWarpTokens * kPitch;
  const bool writes = lane / 4 < heads;
  __syncwarp();  // the keys are read
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d) {
    uint32_t v[4];
    load_matrices_turned(v, values + lane % 16 * kPitch + d * 32 + lane / 16 * 16);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum[4] = {};
      multiply_add(sum, weights.operand, v[2 * i], v[2 * i + 1]);
      if (writes) *reinterpret_cast<float2*>(part + d * 16 + i * 8 + lane % 4 * 2) = {sum[0], sum[1]};
    }
  }
  if (writes && lane % 4 == 0) {
    part[kDim] = weights.largest;
    part[kDim + 1] = weights.total;
  }
}

// The warps' parts as one, for output d of head h: sum / total, the largest score, the sum of weights. `tile_of` is where a warp's
// tile begins.
struct JoinedPart {
  float sum, most, total;
};
template <int kDim, typename TileOf>
[[maybe_unused]] __device__ __forceinline__ JoinedPart join_warps(int h, int d, TileOf tile_of) {
  JoinedPart p = {0, -INFINITY, 0};
  const auto part_of = [&](int w) { return reinterpret_cast<const float*>(tile_of(w)) + h * WarpTile<kDim>::kPart; };
#pragma unroll
  for (int w = 0; w < kPartWarps; ++w) p.most = fmaxf(p.most, part_of(w)[kDim]);
#pragma unroll
  for (int w = 0; w < kPartWarps; ++w) {
    const float* of = part_of(w);
    const float factor = exp2f(of[kDim] - p.most);
    p.sum = fmaf(factor, of[d], p.sum);
    p.total = fmaf(factor, of[kDim + 1], p.total);
  }
  return p;
}

}  // namespace vireo::cuda
