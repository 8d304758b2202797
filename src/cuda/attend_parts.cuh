// What the kernels of decode attention share: the softmax of a warp's 16 tokens, and the parts of a row that become one. A part of one
// head is head_dim sums of weight * value, the largest score (a power of two's exponent) and the sum of weights.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/kv_codes.cuh"
#include "cuda/tensor_core.cuh"

namespace vireo::cuda {

// Weights relative to the largest score, as the operand of a product with values; lane / 4 is the head.
struct WarpWeights {
  uint32_t operand[4];
  float largest, total;
};

// 8 dims of queries as the operands that meet codes: larger, and as codes come by words of four, dims 0 and 2, 1 and 3.
__device__ __forceinline__ uint4 readied_for_codes(uint4 q) {
  const auto larger = [](uint32_t pair) {
    const __nv_bfloat162 v =
        __hmul2(reinterpret_cast<const __nv_bfloat162&>(pair), __float2bfloat162_rn(kCodedFactor));
    return reinterpret_cast<const uint32_t&>(v);
  };
  const uint4 l = {larger(q.x), larger(q.y), larger(q.z), larger(q.w)};
  return {__byte_perm(l.x, l.y, 0x5410), __byte_perm(l.x, l.y, 0x7632), __byte_perm(l.z, l.w, 0x5410),
          __byte_perm(l.z, l.w, 0x7632)};
}

// Products of queries with 8 keys: key_at(j) is the lane's j-th 16 bytes of key lane / 4. With kCodes `q` is readied for them.
template <int kDim, bool kCodes, typename KeyAt>
__device__ __forceinline__ void score_keys(float (&scores)[4], const uint4 (&q)[kDim / 32], KeyAt key_at) {
  constexpr int kPieces = kCodes ? kDim / 64 : kDim / 32;
#pragma unroll
  for (int j = 0; j < kPieces; ++j) {
    const uint4 k = key_at(j);
    if constexpr (kCodes) {
      const uint4 first = q[2 * j], second = q[2 * j + 1];
      multiply_add(scores, {first.x, 0, first.y, 0}, even_numbers(k.x), odd_numbers(k.x));
      multiply_add(scores, {first.z, 0, first.w, 0}, even_numbers(k.y), odd_numbers(k.y));
      multiply_add(scores, {second.x, 0, second.y, 0}, even_numbers(k.z), odd_numbers(k.z));
      multiply_add(scores, {second.z, 0, second.w, 0}, even_numbers(k.w), odd_numbers(k.w));
    } else {
      multiply_add(scores, {q[j].x, 0, q[j].y, 0}, k.x, k.y);
      multiply_add(scores, {q[j].z, 0, q[j].w, 0}, k.z, k.w);
    }
  }
}

// Weights times values: value_at(piece) is where the 16 bytes `piece` of value lane % 16 begin; what becomes of two outputs of head
// lane / 4, the first of which is `dim`, store(dim, values) says.
template <int kDim, bool kCodes, typename ValueAt, typename Store>
__device__ __forceinline__ void sum_values(const WarpWeights& weights, ValueAt value_at, Store store) {
  constexpr int kOfPiece = kCodes ? 16 : 8;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int piece = 0; piece < kDim / kOfPiece; piece += 2) {
    uint32_t v[4];
    load_matrices_turned(v, value_at(piece + lane / 16));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t low = v[2 * i], high = v[2 * i + 1];
      const int dim = (piece + i) * kOfPiece + lane % 4 * (kOfPiece / 4);
      float sum[4] = {};
      if constexpr (kCodes) {
        // What is turned are pairs of codes.
        float odd[4] = {};
        multiply_add(sum, weights.operand, even_numbers(low), even_numbers(high));
        multiply_add(odd, weights.operand, odd_numbers(low), odd_numbers(high));
        store(dim, float2{sum[0], odd[0]});
        store(dim + 2, float2{sum[1], odd[1]});
      } else {
        multiply_add(sum, weights.operand, low, high);
        store(dim, float2{sum[0], sum[1]});
      }
    }
  }
}

// `scores` of 16 tokens as multiply_add leaves them, 8 in each half; those from `tokens` on do not count. With kCodes the scales of values
// are in the weights, and the sum of weights counts in the unit of the products.
template <bool kCodes>
__device__ __forceinline__ WarpWeights soften(float (&scores)[2][4], int tokens, float scale, const TokenScales& of) {
  const int lane = threadIdx.x % 32;
  float largest = -INFINITY;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool inside = half * 8 + lane % 4 * 2 + i < tokens;
      const float times = kCodes ? scale * kSignedByteUnit * TokenScales::of(of.key[half], i) : scale;
      scores[half][i] = inside ? scores[half][i] * times : -INFINITY;
      largest = fmaxf(largest, scores[half][i]);
    }
  }
  largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
  float total = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) total += scores[half][i] = tokens > 0 ? exp2f(scores[half][i] - largest) : 0.0f;
  }
  total += __shfl_xor_sync(kAllLanes, total, 1);
  total += __shfl_xor_sync(kAllLanes, total, 2);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; kCodes && i < 2; ++i) {
      const bool inside = half * 8 + lane % 4 * 2 + i < tokens;
      scores[half][i] = inside ? scores[half][i] * (kCodedFactor * TokenScales::of(of.value[half], i)) : 0.0f;
    }
  }
  if (kCodes) total *= 1 / kSignedByteUnit;
  return {{pack_bf16(scores[0][0], scores[0][1]), 0, pack_bf16(scores[1][0], scores[1][1]), 0}, largest, total};
}

inline constexpr int kPartBatch = 14;  // parts that are read and added together

// A head's parts in memory, for output d: the first is at `from`, the next head_dim + 2 floats further.
struct PlainParts {
  const float* from;
  int head_dim, d;
  struct Batch {
    float values[kPartBatch];
    float2 scores[kPartBatch];
    __device__ __forceinline__ float value(int j) const { return values[j]; }
    __device__ __forceinline__ float largest(int j) const { return scores[j].x; }
    __device__ __forceinline__ float total(int j) const { return scores[j].y; }
  };
  // Those from `begin` on; behind the last they are the last.
  __device__ __forceinline__ Batch read(int begin, int parts) const {
    Batch b;
#pragma unroll
    for (int j = 0; j < kPartBatch; ++j) {
      const float* of = from + min(begin + j, parts - 1) * (head_dim + 2);
      b.values[j] = __ldcg(of + d);
      b.scores[j] = __ldcg(reinterpret_cast<const float2*>(of + head_dim));
    }
    return b;
  }
};

// An output of a head from all of its parts, in their order.
template <typename Source>
__device__ __forceinline__ float add_parts(const Source& source, int parts) {
  float most = -INFINITY, sum = 0, total = 0;
#pragma unroll 1
  for (int begin = 0; begin < parts; begin += kPartBatch) {
    const typename Source::Batch part = source.read(begin, parts);
    float batch_most = most;
#pragma unroll
    for (int j = 0; j < kPartBatch; ++j) batch_most = fmaxf(batch_most, part.largest(j));
    const float keep = exp2f(most - batch_most);
    sum *= keep;
    total *= keep;
    most = batch_most;
#pragma unroll
    for (int j = 0; j < kPartBatch; ++j) {
      const float factor = begin + j < parts ? exp2f(part.largest(j) - most) : 0.0f;
      sum = fmaf(factor, part.value(j), sum);
      total = fmaf(factor, part.total(j), total);
    }
  }
  return sum / total;
}

}  // namespace vireo::cuda
