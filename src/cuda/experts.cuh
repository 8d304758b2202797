// Products of rows with the matrices of the experts that they chose: what the kernels for BF16 and for tiers share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/device.cuh"
#include "cuda/kernels.h"

namespace vireo::cuda {

// An item is a row and one of its `k` experts.
struct ExpertArguments {
  const bf16* w;
  int64_t group_size, stride;
  int out, in;
  const int32_t* ids;
  int k;
  const bf16* x;  // row item / k, or null: floats of scratch row `item`
  int64_t x_stride;
  const float* act;
  float* y;
  int64_t scratch_stride;
  bool silu_pairs;
};

__device__ __forceinline__ float expert_input(const ExpertArguments& a, int64_t item, int c) {
  return a.x ? load_float(a.x + item / a.k * a.x_stride + c) : a.act[item * a.scratch_stride + c];
}

// The same products with the weights in their tier.
void multiply_coded_experts(const Queue& queue, const TierMatrix& w, const ExpertArguments& a, unsigned items);

}  // namespace vireo::cuda
