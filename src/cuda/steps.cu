// What ends a step: the choice of the next id from the logits, the move to the next step, and the ids on their way to the host.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "cuda/steps.cuh"

namespace vireo::cuda {
namespace {

constexpr int kThreads = 256;

struct Candidate {
  float value;
  int32_t id;  // -1: some logit was not finite
};

__device__ __forceinline__ Candidate better(Candidate a, Candidate b) {
  if (a.id < 0 || b.id < 0) return {0, -1};
  return a.value > b.value || (a.value == b.value && a.id < b.id) ? a : b;
}

__device__ Candidate best_of_block(Candidate c) {
  __shared__ Candidate best[kThreads / 32];
#pragma unroll
  for (int o = 16; o > 0; o /= 2) {
    const Candidate other = {__shfl_xor_sync(kAllLanes, c.value, o), __shfl_xor_sync(kAllLanes, c.id, o)};
    c = better(c, other);
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) best[threadIdx.x / 32] = c;
  __syncthreads();
  for (int i = 0; i < kThreads / 32; ++i) c = better(c, best[i]);
  return c;
}

__global__ void advance_kernel(AdvanceArguments a) {
  wait_for_previous();
  for (int r = threadIdx.x; r < a.rows; r += blockDim.x) advance_row(a, r, a.sampled[r]);
}

// grid.x parts of the row grid.y; the part that is done last compares all, and with `ring` finishes the step.
__global__ void __launch_bounds__(kThreads)
    sample_kernel(const float* logits, int64_t stride, int cols, SampleScratch s, int32_t* sampled,
                  AdvanceArguments advance, IdRing ring) {
  let_next_start();
  wait_for_previous();
  const float* row = logits + blockIdx.y * stride;
  Candidate c = {-INFINITY, INT32_MAX};
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < cols; i += gridDim.x * kThreads) {
    const float v = row[i];
    c = better(c, {v, isfinite(v) ? i : -1});
  }
  c = best_of_block(c);
  __shared__ bool last;
  if (threadIdx.x == 0) {
    s.values[blockIdx.y * kSampleParts + blockIdx.x] = c.value;
    s.ids[blockIdx.y * kSampleParts + blockIdx.x] = c.id;
    last = add_in_order(s.counters + blockIdx.y, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  c = {-INFINITY, INT32_MAX};
  for (int i = threadIdx.x; i < gridDim.x; i += kThreads) {
    const int at = blockIdx.y * kSampleParts + i;
    c = better(c, {__ldcg(s.values + at), __ldcg(s.ids + at)});
  }
  c = best_of_block(c);
  if (threadIdx.x > 0) return;
  sampled[blockIdx.y] = c.id;
  s.counters[blockIdx.y] = 0;
  if (!ring.words) return;
  advance_row(advance, blockIdx.y, c.id);
  publish_row(ring, blockIdx.y, gridDim.y, c.id, s.counters + kGemvRows);
}

void launch_sample(const Queue& queue, Tensor logits, int32_t* sampled, SampleScratch scratch,
                   const AdvanceArguments& advance, IdRing ring) {
  const int parts = static_cast<int>(std::min<int64_t>(kSampleParts, (logits.cols + kThreads - 1) / kThreads));
  launch(queue, sample_kernel, dim3(parts, static_cast<unsigned>(logits.rows)), kThreads, 0, logits.row<float>(0),
         logits.stride, static_cast<int>(logits.cols), scratch, sampled, advance, ring);
}

}  // namespace

void sample(const Queue& queue, Tensor logits, Tensor sampled, SampleScratch scratch) {
  for (int64_t first = 0; first < logits.rows; first += kGemvRows) {
    const int64_t rows = std::min<int64_t>(kGemvRows, logits.rows - first);
    launch_sample(queue, logits.slice_rows(first, rows), sampled.row<int32_t>(first), scratch, {}, {});
  }
}

void advance(const Queue& queue, const Step& step) {
  launch(queue, advance_kernel, 1, 32, 0, advance_arguments(step));
}

void finish_step(const Queue& queue, Tensor logits, const Step& step, SampleScratch scratch, IdRing ring) {
  CHECK(logits.rows == step.rows && step.sampled.rows == step.rows && step.rows <= kGemvRows);
  launch_sample(queue, logits, step.sampled.row<int32_t>(0), scratch, advance_arguments(step), ring);
}

}  // namespace vireo::cuda
