// Attention of up to 8 rows over the paged cache where the device has bulk copies (compute capability 9.0): as attend_decode.cu, but keys
// and values arrive on barriers, and for a single row norm, rotation and append are done here too: every block needs the few
// queries, and one warp the new key.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "cuda/attend_parts.cuh"
#include "cuda/kernels.h"
#include "cuda/norm_rope.cuh"
#include "cuda/sm90/bulk_copy.cuh"

namespace vireo::cuda {
namespace {

constexpr int kWarps = 8, kTokens = kSplitTokens / kWarps, kHeads = 8;  // tokens of a warp, most heads of a group
static_assert(kTokens == 16);

struct BulkArguments {
  const bf16* q;  // with `fused`, rows of q, k and v
  int64_t q_stride;
  bool fused;
  const float *q_weight, *k_weight, *cos_sin;
  float q_eps, k_eps;
  bf16 *k, *v;
  const int32_t *sequences, *lengths, *slots, *page_table;
  int pages;  // of a sequence
  int rows, heads, kv_heads;
  float scale;  // times log2(e)
  float* partials;
  int32_t* counters;
  int parts;  // room for parts of one row and head
  bf16* out;
  int64_t out_stride;
};

// Shared memory of a block, head_dim kDim.
template <int kDim>
struct Room {
  static constexpr int kPitch = kDim * 2 + 16;  // bytes from a token to the next: ldmatrix meets no bank twice
  static constexpr int kWarpBytes = 2 * kTokens * kPitch;  // keys, then values
  static constexpr int kPart = kDim + 2;  // of a head: sums of weight * value, the largest score, the sum of weights
  // The warps' parts lie where their keys were.
  static constexpr int kTilesBytes = kWarps * kWarpBytes;
  static_assert(kHeads * kPart * 4 <= kWarpBytes / 2);
  static constexpr int kBytes = kTilesBytes + kHeads * kDim * 2;
};

// `tokens` of a warp's 16 for up to 8 heads: lane / 4 is the head. Its sums, the largest score and the sum of weights go to `part`, the
// head's, which lies where the warp's keys were.
template <int kDim>
[[maybe_unused]] __device__ __forceinline__ void attend_warp(const uint4 (&q)[kDim / 32], uint32_t keys, int tokens,
                                                             int heads, float scale, float* part) {
  constexpr int kPitch = Room<kDim>::kPitch;
  const int lane = threadIdx.x % 32;
  float scores[2][4] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < kDim / 32; ++j) {
      const uint4 k = load_shared(keys + (half * 8 + lane / 4) * kPitch + j * 64 + lane % 4 * 16);
      multiply_add(scores[half], {q[j].x, 0, q[j].y, 0}, k.x, k.y);
      multiply_add(scores[half], {q[j].z, 0, q[j].w, 0}, k.z, k.w);
    }
  }
  const WarpWeights weights = soften(scores, tokens, scale);
  const uint32_t values = keys + kTokens * kPitch;
  const bool writes = lane / 4 < heads;
  __syncwarp();  // the keys are read
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d) {
    uint32_t v[4];
    load_matrices_turned(v, values + lane % 16 * kPitch + d * 32 + lane / 16 * 16);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum[4] = {};
      multiply_add(sum, weights.operand, v[2 * i], v[2 * i + 1]);
      if (writes) *reinterpret_cast<float2*>(part + d * 16 + i * 8 + lane % 4 * 2) = {sum[0], sum[1]};
    }
  }
  if (writes && lane % 4 == 0) {
    part[kDim] = weights.largest;
    part[kDim + 1] = weights.total;
  }
}

// grid.x: rows and KV heads; grid.y: parts, in turns where there are more than blocks.
template <int kDim>
__global__ void __launch_bounds__(kWarps * 32, 2) attend_bulk_kernel(BulkArguments a) {
#if __CUDA_ARCH__ >= 900
  using R = Room<kDim>;
  constexpr int kChunks = kDim / 8;
  extern __shared__ uint4 shared[];
  __shared__ Barrier arrived[kWarps];
  __shared__ bool last;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = blockIdx.x / a.kv_heads, kv_head = blockIdx.x % a.kv_heads, group = a.heads / a.kv_heads;
  const int length = load_index(a.lengths + row), parts = (length + kSplitTokens - 1) / kSplitTokens;
  if (blockIdx.y >= parts) {
    let_next_start();
    wait_for_previous();
    return;
  }
  char* tiles = reinterpret_cast<char*>(shared) + warp * R::kWarpBytes;
  bf16* queries = reinterpret_cast<bf16*>(reinterpret_cast<char*>(shared) + R::kTilesBytes);
  if (lane == 0) {
    start_barrier(arrived[warp], 1);
    publish_barriers();
  }
  __syncwarp();

  const int32_t* pages = a.page_table + int64_t{load_index(a.sequences + row)} * a.pages;
  // Tokens of earlier steps are there; those of this step, the last `rows` at most, are not before the wait.
  const int old = max(0, length - a.rows);
  const int kv = lane / 16, token = lane % 16;  // what this lane copies: a key or a value
  const auto cache_of = [&](int t) {
    const int64_t page = load_index(pages + t / kPageTokens);
    return cache_row(page, t % kPageTokens, kv_head, a.kv_heads, kDim);
  };
  // Sends for the warp's old tokens and clears the rows of those beyond the length.
  const auto send = [&](int first) {
    if (lane == 0) expect_bytes(arrived[warp], max(0, min(kTokens, old - first)) * 2 * kDim * 2);
    __syncwarp();
    const int t = first + token;
    char* to = tiles + (kv * kTokens + token) * R::kPitch;
    if (t < old) {
      copy_bulk(shared_address(to), (kv ? a.v : a.k) + cache_of(t), kDim * 2, arrived[warp]);
    } else if (t >= length) {
#pragma unroll 1
      for (int c = 0; c < kChunks; ++c) reinterpret_cast<uint4*>(to)[c] = uint4{0, 0, 0, 0};
    }
  };
  const bf16* q = a.q + row * a.q_stride;
  // The tokens of this step: lanes 0 to 15 bring a key, the others a value.
  const auto bring_new = [&](int first, const HeadPairs& k_weight) {
#pragma unroll 1
    for (int t = max(first, old); t < min(first + kTokens, length); ++t) {
      char* to = tiles + (t - first) * R::kPitch;
      if (a.fused) {
        const bf16* key = q + (int64_t{a.heads} + kv_head) * kDim;
        const bf16* value = key + int64_t{a.kv_heads} * kDim;
        const int slot = a.slots[row];
        const uint4 v = lane < kChunks ? reinterpret_cast<const uint4*>(value)[lane] : uint4{0, 0, 0, 0};
        const HeadPairs pairs = norm_rope(key, k_weight, a.k_eps, a.cos_sin, kDim);
        store_head(pairs, kDim, reinterpret_cast<bf16*>(to));
        if (lane < kChunks) reinterpret_cast<uint4*>(to + kTokens * R::kPitch)[lane] = v;
        if (slot < 0) continue;
        const int64_t at = cache_row(slot / kPageTokens, slot % kPageTokens, kv_head, a.kv_heads, kDim);
        store_head(pairs, kDim, a.k + at);
        if (lane < kChunks) reinterpret_cast<uint4*>(a.v + at)[lane] = v;
      } else if (token < kChunks) {
        const bf16* from = (kv ? a.v : a.k) + cache_of(t);
        reinterpret_cast<uint4*>(to + kv * kTokens * R::kPitch)[token] = reinterpret_cast<const uint4*>(from)[token];
      }
    }
  };
  const int my_first = blockIdx.y * kSplitTokens + warp * kTokens;
  send(my_first);
  HeadPairs q_weight = {}, k_weight = {};
  if (a.fused && warp < group) q_weight = head_weights(a.q_weight, kDim);
  if (a.fused && my_first < length && length <= my_first + kTokens) k_weight = head_weights(a.k_weight, kDim);
  let_next_start();

  wait_for_previous();
  if (warp < group) {
    const bf16* head = q + (int64_t{kv_head} * group + warp) * kDim;
    if (a.fused) {
      store_head(norm_rope(head, q_weight, a.q_eps, a.cos_sin, kDim), kDim, queries + warp * kDim);
    } else if (lane < kChunks) {
      reinterpret_cast<uint4*>(queries + warp * kDim)[lane] = reinterpret_cast<const uint4*>(head)[lane];
    }
  }
  bring_new(my_first, k_weight);
  __syncthreads();

  uint4 mine[kDim / 32];
#pragma unroll
  for (int j = 0; j < kDim / 32; ++j) {
    const bf16* from = queries + lane / 4 * kDim + j * 32 + lane % 4 * 8;
    mine[j] = lane / 4 < group ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
  }
  const int64_t first_head = row * int64_t{a.heads} + int64_t{kv_head} * group;
  uint32_t phase = 0;
#pragma unroll 1
  for (int part = blockIdx.y; part < parts; part += gridDim.y, phase ^= 1) {
    const int first = part * kSplitTokens + warp * kTokens;
    if (part != blockIdx.y) {
      order_copies();
      __syncthreads();
      send(first);
      bring_new(first, a.fused ? head_weights(a.k_weight, kDim) : HeadPairs{});
      __syncwarp();
    }
    wait_for(arrived[warp], phase);
    attend_warp<kDim>(mine, shared_address(tiles), length - first, group, a.scale,
                      reinterpret_cast<float*>(tiles) + lane / 4 * R::kPart);
    __syncthreads();
    // The warps' parts become one.
#pragma unroll 1
    for (int i = threadIdx.x; i < group * kDim; i += blockDim.x) {
      const int h = i / kDim, d = i % kDim;
      const float* from = reinterpret_cast<const float*>(shared) + h * R::kPart;
      float most = -INFINITY, sum = 0, total = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) most = fmaxf(most, from[w * (R::kWarpBytes / 4) + kDim]);
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float* of = from + w * (R::kWarpBytes / 4);
        const float factor = exp2f(of[kDim] - most);
        sum = fmaf(factor, of[d], sum);
        total = fmaf(factor, of[kDim + 1], total);
      }
      if (parts == 1) {
        store_float(a.out + row * a.out_stride + (int64_t{kv_head} * group + h) * kDim + d, sum / total);
        continue;
      }
      float* to = a.partials + ((first_head + h) * a.parts + part) * R::kPart;
      to[d] = sum;
      if (d == 0) *reinterpret_cast<float2*>(to + kDim) = {most, total};
    }
    if (parts == 1) return;
    __syncthreads();
    if (threadIdx.x == 0) {
      int32_t* counter = a.counters + blockIdx.x;
      last = add_in_order(counter, 1) == parts - 1;
      if (last) *counter = 0;
    }
    __syncthreads();
    if (!last) continue;
#pragma unroll 1
    for (int i = threadIdx.x; i < group * kDim; i += blockDim.x) {
      const int h = i / kDim, d = i % kDim;
      const float* from = a.partials + (first_head + h) * a.parts * R::kPart;
      store_float(a.out + row * a.out_stride + (int64_t{kv_head} * group + h) * kDim + d,
                  add_parts(from, kDim, parts, d));
    }
  }
#endif
}

template <int kDim>
void run(const Queue& queue, const BulkArguments& a) {
  const auto kernel = attend_bulk_kernel<kDim>;
  static SharedMemory memory;
  memory.allow(reinterpret_cast<const void*>(kernel), Room<kDim>::kBytes);
  // Blocks without a part, the last ones, leave at once.
  const int at_once = std::max(1, 2 * queue.multiprocessors / (a.rows * a.kv_heads));
  launch(queue, kernel, dim3(a.rows * a.kv_heads, std::min(a.parts, at_once)), kWarps * 32, Room<kDim>::kBytes, a);
}

}  // namespace

bool attends_in_bulk(const Queue& queue, const AttentionShape& shape) {
  return queue.bulk_copies && shape.heads / shape.kv_heads <= kHeads && (shape.head_dim == 64 || shape.head_dim == 128);
}

void attend_bulk(const Queue& queue, Tensor qkv, const HeadNorms* norms, const Step& step, KvLayer cache,
                 const AttentionShape& shape, DecodeScratch scratch, Tensor out) {
  CHECK(qkv.rows <= kGemvRows && qkv.dtype == DType::kBF16 && out.dtype == DType::kBF16 && qkv.stride % 8 == 0);
  CHECK(!norms || qkv.rows == 1);
  BulkArguments a = {};
  a.q = qkv.row<bf16>(0);
  a.q_stride = qkv.stride;
  a.fused = norms != nullptr;
  if (norms) {
    a.q_weight = norms->q.weight.row<float>(0);
    a.k_weight = norms->k.weight.row<float>(0);
    a.q_eps = norms->q.eps;
    a.k_eps = norms->k.eps;
    a.cos_sin = norms->cos_sin.row<float>(0);
  }
  a.k = cache.k.row<bf16>(0);
  a.v = cache.v.row<bf16>(0);
  a.sequences = step.sequences.row<int32_t>(0);
  a.lengths = step.lengths.row<int32_t>(0);
  a.slots = step.slots.row<int32_t>(0);
  a.page_table = step.page_table.row<int32_t>(0);
  a.pages = static_cast<int>(step.page_table.cols);
  a.rows = static_cast<int>(qkv.rows);
  a.heads = shape.heads;
  a.kv_heads = shape.kv_heads;
  a.scale = shape.scale * kLog2e;
  a.partials = scratch.partials;
  a.counters = scratch.counters;
  a.parts = (a.pages * kPageTokens + kSplitTokens - 1) / kSplitTokens;
  a.out = out.row<bf16>(0);
  a.out_stride = out.stride;
  if (shape.head_dim == 64) return run<64>(queue, a);
  run<128>(queue, a);
}

}  // namespace vireo::cuda
