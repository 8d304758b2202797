// What the kernels of decode attention share: the softmax of a warp's 16 tokens, and the parts of a row that become one. A part of one
// head is head_dim sums of weight * value, the largest score (a power of two's exponent) and the sum of weights.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/tensor_core.cuh"

namespace vireo::cuda {

// Weights relative to the largest score, as the operand of a product with values; lane / 4 is the head.
struct WarpWeights {
  uint32_t operand[4];
  float largest, total;
};

// `scores` of 16 tokens as multiply_add leaves them, 8 in each half; those from `tokens` on do not count.
__device__ __forceinline__ WarpWeights soften(float (&scores)[2][4], int tokens, float scale) {
  const int lane = threadIdx.x % 32;
  float largest = -INFINITY;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool inside = half * 8 + lane % 4 * 2 + i < tokens;
      scores[half][i] = inside ? scores[half][i] * scale : -INFINITY;
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
