// What the kernels of decode attention share: the softmax of a warp's 16 tokens, and the parts of a row that become one. A part of one
// head is head_dim sums of weight * value, the largest score (a power of two's exponent) and the sum of weights.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/kv_codes.cuh"
#include "cuda/tensor_core.cuh"

namespace vireo::cuda {

// Weights of 16 tokens relative to the largest score, as the second operand of a product with values; lane / 4 is the head.
struct WarpWeights {
  uint32_t operand[2];
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
// Where that puts a dim.
__device__ __forceinline__ int place_for_codes(int dim) {
  return (dim & ~3) | (dim & 1) << 1 | (dim >> 1 & 1);
}

// The first of the 8 dims that are the lane's operand j.
template <bool kCodes>
__device__ __forceinline__ int query_dim(int j) {
  const int quad = threadIdx.x % 4;
  return kCodes ? j / 2 * 64 + quad * 16 + j % 2 * 8 : j * 32 + quad * 8;
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

// Sums of weight * value over tokens, for 8 heads, as products of values and weights leave them in a warp.
template <int kDim, bool kCodes>
struct ValueSums {
  float of[kDim / 16][4] = {};

  // A lane's sum of[b][r] is of head first_head() + r % 2, dim first_dim() + further(b, r).
  __device__ __forceinline__ static int first_head() { return threadIdx.x % 4 * 2; }
  __device__ __forceinline__ static int first_dim() { return threadIdx.x % 32 / 4 * (kCodes ? 2 : 1); }
  __device__ __forceinline__ static constexpr int further(int b, int r) {
    return kCodes ? b / 2 * 32 + r / 2 * 16 + b % 2 : b * 16 + r / 2 * 8;
  }
  __device__ __forceinline__ static int head(int r) { return first_head() + r % 2; }
  __device__ __forceinline__ static int dim(int b, int r) { return first_dim() + further(b, r); }

  // Those of 16 more tokens: value_at(token, piece) is where the 16 bytes `piece` of a value begin.
  template <typename ValueAt>
  __device__ __forceinline__ void add(const WarpWeights& weights, ValueAt value_at) {
    const int lane = threadIdx.x % 32, token = lane / 16 * 8 + lane % 8;
    const uint32_t w0 = weights.operand[0], w1 = weights.operand[1];
#pragma unroll
    for (int b = 0; b < kDim / 16; b += kCodes ? 2 : 1) {
      uint32_t v[4];
      load_matrices_turned(v, value_at(token, (kCodes ? b : 2 * b) + lane / 8 % 2));
      if constexpr (kCodes) {
        // What is turned are pairs of codes.
        const uint32_t even[4] = {even_numbers(v[0]), even_numbers(v[1]), even_numbers(v[2]), even_numbers(v[3])};
        const uint32_t odd[4] = {odd_numbers(v[0]), odd_numbers(v[1]), odd_numbers(v[2]), odd_numbers(v[3])};
        multiply_add(of[b], even, w0, w1);
        multiply_add(of[b + 1], odd, w0, w1);
      } else {
        multiply_add(of[b], v, w0, w1);
      }
    }
  }
};

// `scores` of 16 tokens as multiply_add leaves them, 8 in each half; those from `tokens` on do not count. With kCodes the scales of values
// are in the weights, and the sum of weights counts in the unit of the products. `largest` is that of scores before these.
template <bool kCodes>
__device__ __forceinline__ WarpWeights soften(float (&scores)[2][4], int tokens, float scale, const TokenScales& of,
                                              float largest = -INFINITY) {
  const int lane = threadIdx.x % 32;
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
  return {{pack_bf16(scores[0][0], scores[0][1]), pack_bf16(scores[1][0], scores[1][1])}, largest, total};
}

inline constexpr int kPartBatch = 14;  // parts that are read and added together

// A head's parts in memory, for output d: the first is at `from`, the next head_dim + 2 floats further.
struct PlainParts {
  const float* from;
  int head_dim, d;
  struct Batch {
    float values[kPartBatch], factors[kPartBatch];
    float2 scores[kPartBatch];
    __device__ __forceinline__ float value(int j) const { return values[j]; }
    __device__ __forceinline__ float most() const {
      float most = scores[0].x;
#pragma unroll
      for (int j = 1; j < kPartBatch; ++j) most = fmaxf(most, scores[j].x);
      return most;
    }
    // The first `count` count.
    __device__ __forceinline__ void weigh(float most, int count) {
#pragma unroll
      for (int j = 0; j < kPartBatch; ++j) factors[j] = j < count ? exp2f(scores[j].x - most) : 0.0f;
    }
    __device__ __forceinline__ float factor(int j) const { return factors[j]; }
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
    typename Source::Batch part = source.read(begin, parts);
    const float batch_most = fmaxf(most, part.most());
    const float keep = exp2f(most - batch_most);
    sum *= keep;
    total *= keep;
    most = batch_most;
    part.weigh(most, parts - begin);
#pragma unroll
    for (int j = 0; j < kPartBatch; ++j) {
      sum = fmaf(part.factor(j), part.value(j), sum);
      total = fmaf(part.factor(j), part.total(j), total);
    }
  }
  return __fdividef(sum, total);
}

}  // namespace vireo::cuda
