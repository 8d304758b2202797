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

// A warp's tokens in shared memory, head_dim kDim: first the keys, then the values.
template <int kDim, bool kCodes>
struct WarpTile {
  static constexpr int kRow = kCodes ? kv_code_bytes(kDim) : kDim * 2;  // bytes of a token
  static constexpr int kPitch = kRow + 16;                               // to the next: ldmatrix meets no bank twice
  static constexpr int kPart = kDim + 2;  // of a head: sums of weight * value, the largest score, the sum of weights
  // The warp's parts lie where its keys were.
  static constexpr int kValues =
      kWarpTokens * kPitch > kGroupHeads * kPart * 4 ? kWarpTokens * kPitch : kGroupHeads * kPart * 4;
  // Behind them the scales, of the keys and of the values.
  static constexpr int kScales = kValues + kWarpTokens * kPitch;
  static constexpr int kBytes = kScales + (kCodes ? 2 * kWarpTokens * 2 : 0);
  static_assert(kValues % 16 == 0);
};

// A new key or value of a head, by one warp: to its row of a tile, and to row `at` of the cache, unless that is -1. In codes each returns the
// scale, which is still to be put into the tile.
template <int kDim, bool kCodes>
struct NewRow {
  char* tile;
  void* cache;  // of all rows
  bf16* scales;
  int64_t at;

  __device__ __forceinline__ float put(const HeadPairs& pairs) const {
    if constexpr (kCodes) {
      return put_codes(code_head(pairs));
    } else {
      store_head(pairs, kDim, reinterpret_cast<bf16*>(tile));
      if (at >= 0) store_head(pairs, kDim, static_cast<bf16*>(cache) + at * kDim);
      return 1;
    }
  }
  // Of each of the first lanes 8 elements, of the others zeros.
  __device__ __forceinline__ float put(uint4 chunk) const {
    if constexpr (kCodes) {
      return put_codes(code_chunks(chunk));
    } else {
      const int lane = threadIdx.x % 32;
      if (lane >= kDim / 8) return 1;
      reinterpret_cast<uint4*>(tile)[lane] = chunk;
      if (at >= 0) reinterpret_cast<uint4*>(static_cast<bf16*>(cache) + at * kDim)[lane] = chunk;
      return 1;
    }
  }

 private:
  template <typename Coded>
  __device__ __forceinline__ float put_codes(const Coded& coded) const {
    coded.put(kDim, reinterpret_cast<uint8_t*>(tile));
    if (at < 0) return coded.scale;
    coded.put(kDim, static_cast<uint8_t*>(cache) + at * kv_code_bytes(kDim));
    if (threadIdx.x % 32 == 0) store_float(scales + at, coded.scale);
    return coded.scale;
  }
};

// The group's queries as a warp's operand: lane / 4 is the head.
template <int kDim, bool kCodes>
[[maybe_unused]] __device__ __forceinline__ void load_queries(uint4 (&q)[kDim / 32], const bf16* queries, int group) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kDim / 32; ++j) {
    const int dim = kCodes ? j / 2 * 64 + lane % 4 * 16 + j % 2 * 8 : j * 32 + lane % 4 * 8;
    const bf16* from = queries + lane / 4 * kDim + dim;
    q[j] = lane / 4 < group ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
    if (kCodes) q[j] = readied_for_codes(q[j]);
  }
}

// `tokens` of a warp's 16 for up to 8 heads: lane / 4 is the head. Its sums, the largest score and the sum of weights go to `part`, the
// head's, which lies where the warp's keys were.
template <int kDim, bool kCodes>
[[maybe_unused]] __device__ __forceinline__ void attend_warp(const uint4 (&q)[kDim / 32], uint32_t keys, int tokens,
                                                             int heads, float scale, const TokenScales& of,
                                                             float* part) {
  using T = WarpTile<kDim, kCodes>;
  const int lane = threadIdx.x % 32;
  float scores[2][4] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t key = keys + (half * 8 + lane / 4) * T::kPitch + lane % 4 * 16;
    score_keys<kDim, kCodes>(scores[half], q, [&](int j) { return load_shared(key + j * 64); });
  }
  const WarpWeights weights = soften<kCodes>(scores, tokens, scale, of);
  const uint32_t value = keys + T::kValues + lane % 16 * T::kPitch;
  const bool writes = lane / 4 < heads;
  __syncwarp();  // the keys are read
  sum_values<kDim, kCodes>(
      weights, [&](int piece) { return value + piece * 16; },
      [&](int dim, float2 sums) {
        if (writes) *reinterpret_cast<float2*>(part + dim) = sums;
      });
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
template <int kDim, bool kCodes, typename TileOf>
[[maybe_unused]] __device__ __forceinline__ JoinedPart join_warps(int h, int d, TileOf tile_of) {
  JoinedPart p = {0, -INFINITY, 0};
  const auto part_of = [&](int w) { return reinterpret_cast<const float*>(tile_of(w)) + h * WarpTile<kDim, kCodes>::kPart; };
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
