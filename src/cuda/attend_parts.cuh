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

// Output d of a head from all of its parts, in their order; the first is at `from`, the next head_dim + 2 floats further.
__device__ __forceinline__ float add_parts(const float* from, int head_dim, int parts, int d) {
  constexpr int kBatch = 16;  // parts whose loads are in flight together
  float most = -INFINITY, sum = 0, total = 0;
#pragma unroll 1
  for (int begin = 0; begin < parts; begin += kBatch) {
    float value[kBatch];
    float2 scores[kBatch];  // largest, total
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const float* of = from + min(begin + j, parts - 1) * (head_dim + 2);
      value[j] = __ldcg(of + d);
      scores[j] = __ldcg(reinterpret_cast<const float2*>(of + head_dim));
    }
    float batch_most = most;
#pragma unroll
    for (int j = 0; j < kBatch; ++j) batch_most = fmaxf(batch_most, scores[j].x);
    const float keep = exp2f(most - batch_most);
    sum *= keep;
    total *= keep;
    most = batch_most;
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const float factor = begin + j < parts ? exp2f(scores[j].x - most) : 0.0f;
      sum = fmaf(factor, value[j], sum);
      total = fmaf(factor, scores[j].y, total);
    }
  }
  return sum / total;
}

}  // namespace vireo::cuda
