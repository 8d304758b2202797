// What the kernels of decode attention over bulk copies share: how a warp's keys and values lie in shared memory, and what becomes of
// them (compute capability 9.0).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "cuda/attend_parts.cuh"
#include "cuda/kernels.h"
#include "cuda/norm_rope.cuh"
#include "cuda/sm90/ring.cuh"

namespace vireo::cuda {

inline constexpr int kPartWarps = 8, kWarpTokens = kSplitTokens / kPartWarps;  // of a part; 16 keys, then 16 values
inline constexpr int kGroupHeads = 8;                                          // most heads of a KV head
static_assert(kWarpTokens == 16);

// A warp's tokens in shared memory, head_dim kDim: first the keys, then the values.
template <int kDim, bool kCodes>
struct WarpTile {
  static constexpr int kRow = kCodes ? kv_code_bytes(kDim) : kDim * 2;  // bytes of a token
  // To the next. ldmatrix meets no bank twice: codes lie so that tokens are copied as they are, one after the other.
  static constexpr int kPitch = kCodes ? kRow : kRow + 16;
  static constexpr int kPart = kDim + 2;  // of a head: sums of weight * value, the largest score, the sum of weights
  // The warp's parts lie where its keys were.
  static constexpr int kValues =
      (std::max(kWarpTokens * kPitch, kGroupHeads * kPart * 4) + kStageAlignment - 1) / kStageAlignment * kStageAlignment;
  // Behind them the scales, of the keys and of the values.
  static constexpr int kScales = kValues + kWarpTokens * kPitch;
  static constexpr int kBytes = kScales + (kCodes ? kStageAlignment : 0);
  static_assert(2 * kWarpTokens * 2 <= kStageAlignment);

  // Where the 16 bytes `piece` of a key or value lie.
  __device__ __forceinline__ static int place(int token, int piece) {
    return token * kPitch + (kCodes ? kv_code_place(piece * 16, token, kDim) : piece * 16);
  }
};

// A new key or value of a head, by one warp: to its row in shared memory, and to row `at` of the cache, unless that is -1. In codes each
// returns the scale, which is still to be put beside the row.
template <int kDim, bool kCodes>
struct NewRow {
  char* row;
  void* cache;  // of all rows
  bf16* scales;
  int64_t at;
  int token;  // of its page

  __device__ __forceinline__ float put(const HeadPairs& pairs) const {
    if constexpr (kCodes) {
      return put_codes(code_head(pairs));
    } else {
      store_head(pairs, kDim, reinterpret_cast<bf16*>(row));
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
      reinterpret_cast<uint4*>(row)[lane] = chunk;
      if (at >= 0) reinterpret_cast<uint4*>(static_cast<bf16*>(cache) + at * kDim)[lane] = chunk;
      return 1;
    }
  }

 private:
  template <typename Coded>
  __device__ __forceinline__ float put_codes(const Coded& coded) const {
    coded.put(kDim, token, reinterpret_cast<uint8_t*>(row));
    if (at < 0) return coded.scale;
    coded.put(kDim, token, static_cast<uint8_t*>(cache) + at * kv_code_bytes(kDim));
    if (threadIdx.x % 32 == 0) store_float(scales + at, coded.scale);
    return coded.scale;
  }
};

// Queries in shared memory, as a warp's operands: lane / 4 is the head. For codes they are readied when they are put there.
template <int kDim, bool kCodes>
struct Queries {
  bf16* at;  // [kGroupHeads][kDim]
  static constexpr int kBytes = kGroupHeads * kDim * 2;

  // Head h, by a warp.
  __device__ __forceinline__ void put(int h, const HeadPairs& pairs) const {
    if constexpr (!kCodes) return store_head(pairs, kDim, at + h * kDim);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kDim / 64; ++i) {
      const int j = place_for_codes(i * 32 + lane);
      store_float(at + h * kDim + j, pairs.low[i] * kCodedFactor);
      store_float(at + h * kDim + kDim / 2 + j, pairs.high[i] * kCodedFactor);
    }
  }
  __device__ __forceinline__ void put(int h, int chunk, uint4 elements) const {
    reinterpret_cast<uint4*>(at + h * kDim)[chunk] = kCodes ? readied_for_codes(elements) : elements;
  }
  __device__ __forceinline__ uint4 operand(int j, int heads) const {
    const int lane = threadIdx.x % 32, dim = query_dim<kCodes>(j);
    return lane / 4 < heads ? *reinterpret_cast<const uint4*>(at + lane / 4 * kDim + dim) : uint4{0, 0, 0, 0};
  }
};

// What a warp has of the tokens it met, for up to 8 heads: lane / 4 is the head.
template <int kDim, bool kCodes>
struct WarpSums {
  ValueSums<kDim, kCodes> sums;
  float largest = -INFINITY, total = 0;

  // `tokens` of a tile of 16, not none. is_first: there are no sums yet.
  __device__ __forceinline__ void add(const Queries<kDim, kCodes>& queries, int heads, uint32_t keys, int tokens,
                                      float scale, const TokenScales& of, bool is_first) {
    using T = WarpTile<kDim, kCodes>;
    const int lane = threadIdx.x % 32;
    uint4 q[kDim / 32];
#pragma unroll
    for (int j = 0; j < kDim / 32; ++j) q[j] = queries.operand(j, heads);
    float scores[2][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = half * 8 + lane / 4;
      score_keys<kDim, kCodes>(scores[half], q,
                               [&](int j) { return load_shared(keys + T::place(token, j * 4 + lane % 4)); });
    }
    const WarpWeights weights = soften<kCodes>(scores, tokens, scale, of, largest);
    const float share = exp2f(largest - weights.largest);
    if (!is_first) keep(share);
    total = fmaf(total, share, weights.total);
    largest = weights.largest;
    const uint32_t values = keys + T::kValues;
    sums.add(weights, [&](int token, int piece) { return values + T::place(token, piece); });
  }

  // As a part of each head, one after the other. They may lie where a tile's keys were.
  __device__ __forceinline__ void put(int heads, float* parts) const {
    constexpr int kPart = WarpTile<kDim, kCodes>::kPart;
    const int lane = threadIdx.x % 32, head = sums.first_head();
    float* mine = parts + head * kPart + sums.first_dim();
    __syncwarp();  // the keys are read
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (head + h >= heads) continue;
#pragma unroll
      for (int b = 0; b < kDim / 16; ++b) {
        mine[h * kPart + sums.further(b, h)] = sums.of[b][h];
        mine[h * kPart + sums.further(b, h + 2)] = sums.of[b][h + 2];
      }
    }
    if (lane / 4 < heads && lane % 4 == 0) {
      *reinterpret_cast<float2*>(parts + lane / 4 * kPart + kDim) = {largest, total};
    }
  }

 private:
  // This much of the sums, as the lanes of a head say.
  __device__ __forceinline__ void keep(float share) {
    const int lane = threadIdx.x % 32;
    const float of_head[2] = {__shfl_sync(kAllLanes, share, lane % 4 * 8),
                              __shfl_sync(kAllLanes, share, lane % 4 * 8 + 4)};
#pragma unroll
    for (int b = 0; b < kDim / 16; ++b) {
#pragma unroll
      for (int r = 0; r < 4; ++r) sums.of[b][r] *= of_head[r % 2];
    }
  }
};

// The parts of a row for each KV head, and how many of them, one after the other, a block takes as one: with a single row each has
// at most one such run.
struct PartRuns {
  int parts, of_run, runs;
};
[[maybe_unused]] __device__ __forceinline__ PartRuns runs_of(int length, int kv_heads, int blocks) {
  const int parts = (length + kSplitTokens - 1) / kSplitTokens, most = max(1, blocks / kv_heads);
  const int of_run = (parts + most - 1) / most;
  return {parts, of_run, of_run > 0 ? (parts + of_run - 1) / of_run : 0};
}

// The warps' parts as one, for output d of head h: sum / total, the largest score, the sum of weights. `parts_of` is where a warp put its
// own.
struct JoinedPart {
  float sum, most, total;
};
template <int kDim, bool kCodes, typename PartsOf>
[[maybe_unused]] __device__ __forceinline__ JoinedPart join_warps(int h, int d, PartsOf parts_of) {
  JoinedPart p = {0, -INFINITY, 0};
  const auto part_of = [&](int w) { return parts_of(w) + h * WarpTile<kDim, kCodes>::kPart; };
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
