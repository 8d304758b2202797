// Rows into the paged cache: [page][kv_head][64][head_dim] bf16 for keys and for values. A warp takes one head of one row; decode steps
// and prefill chunks run the same code, so a row has the same bits whichever wrote it.
// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "cuda/kernels.h"
#include "cuda/norm_rope.cuh"

namespace vireo::cuda {
namespace {

constexpr int kWarps = 4;

struct AppendArguments {
  bf16* q;  // null: keys and values only, as they are
  bf16* k;
  bf16* v;
  int64_t stride, v_stride;
  const float *q_weight, *k_weight;
  float q_eps, k_eps;
  const float* cos_sin;
  int64_t cos_sin_stride;
  const int32_t* slots;
  bf16 *cache_k, *cache_v;
  int rows, heads, kv_heads, head_dim;
};

__device__ __forceinline__ int64_t cache_at(const AppendArguments& a, int slot, int kv_head) {
  return cache_row(slot / kPageTokens, slot % kPageTokens, kv_head, a.kv_heads, a.head_dim);
}

__global__ void append_kernel(AppendArguments a) {
  let_next_start();
  wait_for_previous();
  const int per_row = (a.q ? a.heads : 0) + 2 * a.kv_heads, lane = threadIdx.x % 32;
  const int item = blockIdx.x * kWarps + threadIdx.x / 32;
  const int row = item / per_row;
  if (row >= a.rows) return;
  int head = item % per_row;
  if (!a.q) head += a.heads;
  const int slot = a.slots[row];
  if (head < a.heads + a.kv_heads && a.q) {
    const bool is_q = head < a.heads;
    bf16* from = is_q ? a.q + row * a.stride + int64_t{head} * a.head_dim
                      : a.k + row * a.stride + int64_t{head - a.heads} * a.head_dim;
    const HeadPairs weight = head_weights(is_q ? a.q_weight : a.k_weight, a.head_dim);
    const HeadPairs pairs = norm_rope(PlainHead{from}, weight, is_q ? a.q_eps : a.k_eps,
                                      head_angles(a.cos_sin + row * a.cos_sin_stride, a.head_dim), a.head_dim);
    if (is_q) {
      store_head(pairs, a.head_dim, from);
    } else if (slot >= 0) {
      store_head(pairs, a.head_dim, a.cache_k + cache_at(a, slot, head - a.heads));
    }
    return;
  }
  if (slot < 0) return;
  const bool is_k = head < a.heads + a.kv_heads;
  const int kv_head = head - a.heads - (is_k ? 0 : a.kv_heads);
  const bf16* from = (is_k ? a.k + row * a.stride : a.v + row * a.v_stride) + int64_t{kv_head} * a.head_dim;
  bf16* to = (is_k ? a.cache_k : a.cache_v) + cache_at(a, slot, kv_head);
  for (int j = lane; j < a.head_dim; j += 32) to[j] = from[j];
}

void run(const Queue& queue, AppendArguments& a, const Step& step, const AttentionShape& shape, KvLayer cache,
         int per_row) {
  CHECK(shape.head_dim % 2 == 0 && shape.head_dim <= 64 * kMaxPairs);
  a.slots = step.slots.row<int32_t>(0);
  a.cache_k = cache.k.row<bf16>(0);
  a.cache_v = cache.v.row<bf16>(0);
  a.heads = shape.heads;
  a.kv_heads = shape.kv_heads;
  a.head_dim = shape.head_dim;
  launch(queue, append_kernel, (a.rows * per_row + kWarps - 1) / kWarps, kWarps * 32, 0, a);
}

}  // namespace

void norm_rope_append(const Queue& queue, Tensor qkv, const HeadNorms& norms, const Step& step,
                      const AttentionShape& shape, KvLayer cache) {
  CHECK(qkv.dtype == DType::kBF16);
  AppendArguments a = {};
  a.q = qkv.row<bf16>(0);
  a.k = a.q + int64_t{shape.heads} * shape.head_dim;
  a.v = a.k + int64_t{shape.kv_heads} * shape.head_dim;
  a.stride = a.v_stride = qkv.stride;
  a.q_weight = norms.q.weight.row<float>(0);
  a.k_weight = norms.k.weight.row<float>(0);
  a.q_eps = norms.q.eps;
  a.k_eps = norms.k.eps;
  a.cos_sin = norms.cos_sin.row<float>(0);
  a.cos_sin_stride = norms.cos_sin.stride;
  a.rows = static_cast<int>(qkv.rows);
  run(queue, a, step, shape, cache, shape.heads + 2 * shape.kv_heads);
}

void append_kv(const Queue& queue, Tensor k, Tensor v, const Step& step, const AttentionShape& shape, KvLayer cache) {
  CHECK(k.dtype == DType::kBF16 && v.dtype == DType::kBF16);
  AppendArguments a = {};
  a.k = k.row<bf16>(0);
  a.v = v.row<bf16>(0);
  a.stride = k.stride;
  a.v_stride = v.stride;
  a.rows = static_cast<int>(k.rows);
  run(queue, a, step, shape, cache, 2 * shape.kv_heads);
}

}  // namespace vireo::cuda
