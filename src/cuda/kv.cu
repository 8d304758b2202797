// Rows into the paged cache: [page][kv_head][64][head_dim] bf16 for keys and for values. A warp takes one head of one row; decode steps
// and prefill chunks run the same code, so a row has the same bits whichever wrote it. And pages of codes as bf16, for prefill.
// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "cuda/kernels.h"
#include "cuda/kv_codes.cuh"

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
  void *cache_k, *cache_v;  // bf16, or codes with scales
  bf16 *k_scales, *v_scales;
  int rows, heads, kv_heads, head_dim;
};

// A head of keys or of values to where it lies in the cache.
__device__ __forceinline__ void append_head(const AppendArguments& a, const HeadPairs& pairs, bool is_k, int slot,
                                            int kv_head) {
  const int64_t at = cache_row(slot / kPageTokens, slot % kPageTokens, kv_head, a.kv_heads, 1);
  void* cache = is_k ? a.cache_k : a.cache_v;
  if (!a.k_scales) return store_head(pairs, a.head_dim, static_cast<bf16*>(cache) + at * a.head_dim);
  const CodedHead coded = code_head(pairs);
  coded.put(a.head_dim, slot % kPageTokens, static_cast<uint8_t*>(cache) + at * kv_code_bytes(a.head_dim));
  if (threadIdx.x % 32 == 0) store_float((is_k ? a.k_scales : a.v_scales) + at, coded.scale);
}

__global__ void append_kernel(AppendArguments a) {
  let_next_start();
  wait_for_previous();
  const int per_row = (a.q ? a.heads : 0) + 2 * a.kv_heads;
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
    const HeadPairs weight = load_head(is_q ? a.q_weight : a.k_weight, a.head_dim);
    const HeadPairs pairs = norm_rope(PlainHead{from}, weight, is_q ? a.q_eps : a.k_eps,
                                      head_angles(a.cos_sin + row * a.cos_sin_stride, a.head_dim), a.head_dim);
    if (is_q) {
      store_head(pairs, a.head_dim, from);
    } else if (slot >= 0) {
      append_head(a, pairs, true, slot, head - a.heads);
    }
    return;
  }
  if (slot < 0) return;
  const bool is_k = head < a.heads + a.kv_heads;
  const int kv_head = head - a.heads - (is_k ? 0 : a.kv_heads);
  const bf16* from = (is_k ? a.k + row * a.stride : a.v + row * a.v_stride) + int64_t{kv_head} * a.head_dim;
  append_head(a, load_head(from, a.head_dim), is_k, slot, kv_head);
}

void run(const Queue& queue, AppendArguments& a, const Step& step, const AttentionShape& shape, KvLayer cache,
         int per_row) {
  CHECK(shape.head_dim % 4 == 0 && shape.head_dim <= 64 * kMaxPairs);
  a.slots = step.slots.row<int32_t>(0);
  a.cache_k = cache.k.data;
  a.cache_v = cache.v.data;
  a.k_scales = static_cast<bf16*>(cache.k_scales.data);
  a.v_scales = static_cast<bf16*>(cache.v_scales.data);
  a.heads = shape.heads;
  a.kv_heads = shape.kv_heads;
  a.head_dim = shape.head_dim;
  launch(queue, append_kernel, (a.rows * per_row + kWarps - 1) / kWarps, kWarps * 32, 0, a);
}

struct RestoreArguments {
  const uint8_t *k, *v;
  const bf16 *k_scales, *v_scales;
  bf16 *to_k, *to_v;
  const int32_t *sequences, *lengths, *page_table;
  int rows, pages, kv_heads, head_dim;
};

// grid.x: pages of a sequence; grid.y: sequences of the step; grid.z: KV heads.
__global__ void restore_kernel(RestoreArguments a) {
  __shared__ int length;
  if (threadIdx.x == 0) length = 0;
  let_next_start();
  wait_for_previous();
  __syncthreads();
  for (int r = threadIdx.x; r < a.rows; r += blockDim.x) {
    if (a.sequences[r] == static_cast<int>(blockIdx.y)) atomicMax(&length, a.lengths[r]);
  }
  __syncthreads();
  const int tokens = min(length - static_cast<int>(blockIdx.x) * kPageTokens, kPageTokens);
  if (tokens <= 0) return;
  const int64_t page = a.page_table[int64_t{blockIdx.y} * a.pages + blockIdx.x];
  const int64_t first = cache_row(page, 0, blockIdx.z, a.kv_heads, 1);
  const int pieces = a.head_dim / 4;
  for (int i = threadIdx.x; i < tokens * pieces; i += blockDim.x) {
    const int64_t row = first + i / pieces;
    const int dim = i % pieces * 4, place = kv_code_place(dim, i / pieces, a.head_dim);
    const auto restore = [&](const uint8_t* codes, const bf16* scales, bf16* to) {
      const uint32_t word = *reinterpret_cast<const uint32_t*>(codes + row * kv_code_bytes(a.head_dim) + place);
      const uint32_t even = even_numbers(word), odd = odd_numbers(word);
      // In two steps: no float is as large as the factor between codes and numbers.
      constexpr float kFirst = 0x1p100f, kSecond = kCodedFactor * (kSignedByteUnit / kFirst);
      const float scale = load_float(scales + row) * kSecond;
      const auto number = [&](float v) { return v * kFirst * scale; };
      *reinterpret_cast<uint2*>(to + row * a.head_dim + dim) = {
          pack_bf16(number(low_bf16(even)), number(low_bf16(odd))),
          pack_bf16(number(high_bf16(even)), number(high_bf16(odd)))};
    };
    restore(a.k, a.k_scales, a.to_k);
    restore(a.v, a.v_scales, a.to_v);
  }
}

}  // namespace

int64_t kv_code_bytes(const AttentionShape& shape) {
  return kv_code_bytes(shape.head_dim);
}
int64_t kv_code_place(int64_t dim, int64_t token, const AttentionShape& shape) {
  return kv_code_place(static_cast<int>(dim), static_cast<int>(token), shape.head_dim);
}

void restore_pages(const Queue& queue, const Step& step, const AttentionShape& shape, KvLayer cache, KvLayer to) {
  CHECK(shape.head_dim % 4 == 0);
  RestoreArguments a = {};
  a.k = cache.k.row<uint8_t>(0);
  a.v = cache.v.row<uint8_t>(0);
  a.k_scales = cache.k_scales.row<bf16>(0);
  a.v_scales = cache.v_scales.row<bf16>(0);
  a.to_k = to.k.row<bf16>(0);
  a.to_v = to.v.row<bf16>(0);
  a.sequences = step.sequences.row<int32_t>(0);
  a.lengths = step.lengths.row<int32_t>(0);
  a.page_table = step.page_table.row<int32_t>(0);
  a.rows = static_cast<int>(step.rows);
  a.pages = static_cast<int>(step.page_table.cols);
  a.kv_heads = shape.kv_heads;
  a.head_dim = shape.head_dim;
  const auto sequences = static_cast<unsigned>(step.page_table.rows);
  launch(queue, restore_kernel, dim3(static_cast<unsigned>(a.pages), sequences, static_cast<unsigned>(a.kv_heads)), 256,
         0, a);
}

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
