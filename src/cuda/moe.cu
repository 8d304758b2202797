// Mixture of experts: the choice of experts per row, and their products, one block of outputs per chosen expert and row.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "cuda/device.cuh"
#include "cuda/experts.cuh"
#include "cuda/kernels.h"

namespace vireo::cuda {
namespace {

constexpr int kWarps = 8;

// One warp per row; the probabilities lie in shared memory.
__global__ void route_kernel(const float* logits, int64_t stride, int experts, int k, bool renormalize, int32_t* ids,
                             float* weights) {
  extern __shared__ float p[];
  let_next_start();
  wait_for_previous();
  const float* row = logits + blockIdx.x * stride;
  const int lane = threadIdx.x;
  float largest = -INFINITY;
  for (int e = lane; e < experts; e += 32) largest = fmaxf(largest, row[e]);
  for (int o = 16; o > 0; o /= 2) largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, o));
  float total = 0;
  for (int e = lane; e < experts; e += 32) total += p[e] = expf(row[e] - largest);
  total = warp_sum(total);
  __syncwarp();
  float chosen = 0;
  for (int i = 0; i < k; ++i) {
    float value = -1;
    int id = experts;
    for (int e = lane; e < experts; e += 32) {
      if (p[e] > value) value = p[e], id = e;
    }
    for (int o = 16; o > 0; o /= 2) {
      const float other = __shfl_xor_sync(kAllLanes, value, o);
      const int other_id = __shfl_xor_sync(kAllLanes, id, o);
      if (other > value || (other == value && other_id < id)) value = other, id = other_id;
    }
    // Logits that are not finite choose nothing; any expert will do for what is refused later.
    id = min(id, experts - 1);
    chosen += value / total;
    if (lane == 0) {
      ids[blockIdx.x * k + i] = id;
      weights[blockIdx.x * k + i] = value / total;
      p[id] = -1;
    }
    __syncwarp();
  }
  if (renormalize && lane < k) weights[blockIdx.x * k + lane] /= chosen;
}

// grid.y: row and chosen expert; a warp per output, or per pair of them.
__global__ void __launch_bounds__(kWarps * 32) expert_kernel(ExpertArguments a) {
  let_next_start();
  wait_for_previous();
  const int64_t item = blockIdx.y;
  const int lane = threadIdx.x % 32, unit = a.silu_pairs ? 2 : 1;
  const int first = (blockIdx.x * kWarps + threadIdx.x / 32) * unit;
  if (first >= a.out) return;
  const bf16* w = a.w + a.ids[item] * a.group_size + first * a.stride;
  float sums[2] = {};
  for (int c = lane * 8; c < a.in; c += 256) {
    float x[8];
    for (int j = 0; j < 8; ++j) {
      x[j] = c + j < a.in ? expert_input(a, item, c + j) : 0.0f;
    }
    for (int u = 0; u < unit; ++u) {
      const uint4 v = load_stream(w + u * a.stride + c);
      sums[u] = fmaf(low_bf16(v.x), x[0], sums[u]);
      sums[u] = fmaf(high_bf16(v.x), x[1], sums[u]);
      sums[u] = fmaf(low_bf16(v.y), x[2], sums[u]);
      sums[u] = fmaf(high_bf16(v.y), x[3], sums[u]);
      sums[u] = fmaf(low_bf16(v.z), x[4], sums[u]);
      sums[u] = fmaf(high_bf16(v.z), x[5], sums[u]);
      sums[u] = fmaf(low_bf16(v.w), x[6], sums[u]);
      sums[u] = fmaf(high_bf16(v.w), x[7], sums[u]);
    }
  }
  const float s0 = warp_sum(sums[0]), s1 = warp_sum(sums[1]);
  if (lane != 0) return;
  float* y = a.y + item * a.scratch_stride;
  if (a.silu_pairs) {
    y[first / 2] = silu(s0) * s1;
  } else {
    y[first] = s0;
  }
}

// inout[r] += sum over the k experts in their order.
__global__ void mix_kernel(const float* y, int64_t scratch_stride, const float* weights, int k, float* inout,
                           int64_t stride, int cols) {
  let_next_start();
  wait_for_previous();
  const int64_t r = blockIdx.x;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    float sum = 0;
    for (int i = 0; i < k; ++i) sum = fmaf(weights[r * k + i], y[(r * k + i) * scratch_stride + c], sum);
    inout[r * stride + c] += sum;
  }
}

// `a` but for the weights.
void multiply_experts(const Queue& queue, const CudaLinear& w, bool decodes, ExpertArguments a, unsigned items) {
  a.w = w.weights;
  a.group_size = w.group_size();
  a.stride = w.stride;
  a.out = static_cast<int>(w.out);
  a.in = static_cast<int>(w.in);
  if (w.reads_codes(decodes)) return multiply_coded_experts(queue, w.coded, a, items);
  const int units = a.silu_pairs ? a.out / 2 : a.out;
  launch(queue, expert_kernel, dim3((units + kWarps - 1) / kWarps, items), kWarps * 32, 0, a);
}

}  // namespace

void route(const Queue& queue, Tensor logits, bool renormalize, Tensor ids, Tensor weights) {
  CHECK(logits.dtype == DType::kF32 && ids.stride == ids.cols && weights.stride == weights.cols && ids.cols <= 32);
  launch(queue, route_kernel, static_cast<unsigned>(logits.rows), 32, static_cast<size_t>(logits.cols) * sizeof(float),
         logits.row<float>(0), logits.stride, static_cast<int>(logits.cols), static_cast<int>(ids.cols), renormalize,
         ids.row<int32_t>(0), weights.row<float>(0));
}

void experts(const Queue& queue, const CudaLinear& gate_up, const CudaLinear& down, bool decodes, Tensor x, Tensor ids,
             Tensor weights, Tensor scratch, Tensor inout) {
  CHECK(gate_up.order == CudaLinear::Order::kPairs && x.dtype == DType::kBF16 && inout.dtype == DType::kF32);
  // A row of scratch: the activation [down.in], then the result [down.out].
  constexpr int64_t kMostItems = 65535;  // of grid.y
  const int64_t k = ids.cols, rows_at_once = kMostItems / k;
  for (int64_t first = 0; first < x.rows; first += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, x.rows - first);
    const unsigned items = static_cast<unsigned>(rows * k);
    float* act = scratch.row<float>(first * k);
    ExpertArguments a = {};
    a.ids = ids.row<int32_t>(first);
    a.k = static_cast<int>(k);
    a.scratch_stride = scratch.stride;
    a.x = x.row<bf16>(first);
    a.x_stride = x.stride;
    a.y = act;
    a.silu_pairs = true;
    multiply_experts(queue, gate_up, decodes, a, items);
    a.x = nullptr;
    a.act = act;
    a.y = act + down.in;
    a.silu_pairs = false;
    multiply_experts(queue, down, decodes, a, items);
    launch(queue, mix_kernel, static_cast<unsigned>(rows), 256, 0, static_cast<const float*>(a.y), scratch.stride,
           weights.row<float>(first), a.k, inout.row<float>(first), inout.stride, static_cast<int>(inout.cols));
  }
}

}  // namespace vireo::cuda
