// Attention of up to 8 rows over the paged cache: bound by the bytes of keys and values. A block takes 128 tokens of one row and KV
// head for the query heads of the group, each of its 8 warps 16 tokens, on the tensor cores (the heads are the rows of the
// product); the block that finishes a row and head last adds the parts up in their order. How many parts there are is read
// from the step, so one grid serves every length.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "cuda/attend_parts.cuh"
#include "cuda/kernels.h"

namespace vireo::cuda {
namespace {

constexpr int kWarps = 8, kWarpTokens = kSplitTokens / kWarps, kHeads = 8;  // heads at a time
static_assert(kWarpTokens == 16 && kPageTokens % kWarpTokens == 0);

struct DecodeArguments {
  const bf16* q;
  int64_t q_stride;
  const void *k, *v;  // bf16, or codes with scales
  const bf16 *k_scales, *v_scales;
  const int32_t *sequences, *lengths, *page_table;
  int pages;  // of a sequence
  int rows, heads, kv_heads, head_dim;
  float scale;  // times log2(e)
  float* partials;
  int32_t* counters;
  int parts;  // room for parts of one row and head
  bf16* out;
  int64_t out_stride;
};

// Keys and values of one warp in shared memory, kDim values each: a key's chunks of 16 bytes are read by the lane that copied them, values
// by ldmatrix, whose rows are swizzled by chunk.
template <int kDim, bool kCodes>
struct WarpTiles {
  static constexpr int kOfChunk = kCodes ? 16 : 8, kChunks = kDim / kOfChunk;
  static constexpr int kBytes = 2 * kWarpTokens * kChunks * 16;
  uint32_t base;
  __device__ uint32_t key(int half, int j, int lane) const {
    return base + ((half * kChunks / 4 + j) * 32 + lane) * 16;
  }
  __device__ uint32_t value(int token, int chunk) const {
    const int turn = kChunks >= 8 ? token & 7 : token >> 1 & 3;
    return base + kBytes / 2 + token * kChunks * 16 + ((chunk ^ turn) << 4);
  }
};

// What a warp or a block knows of its tokens, per head: sums of weight * value, the largest score (in powers of two), the sum of weights.
template <int kDim>
struct Partial {
  float sums[kHeads][kDim + 4];  // so that a warp's stores meet no bank more often than need be
  float largest[kHeads];
  float total[kHeads];
};

// Tokens [first, first + 16) of the part, those below `length` only.
template <int kDim, bool kCodes>
__device__ __forceinline__ void fetch(const DecodeArguments& a, const WarpTiles<kDim, kCodes>& tiles, int64_t at,
                                      int first, int begin, int end, int length, int lane) {
  using T = WarpTiles<kDim, kCodes>;
  const int row = kCodes ? kv_code_bytes(a.head_dim) : a.head_dim * 2;
  const char *k = static_cast<const char*>(a.k), *v = static_cast<const char*>(a.v);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < T::kChunks / 4; ++j) {
      const int token = half * 8 + lane / 4, chunk = j * 4 + lane % 4;
      if (first + token < begin || first + token >= end) continue;
      const bool inside = first + token < length && chunk * T::kOfChunk < a.head_dim;
      const int place = kCodes ? kv_code_place(chunk * 16, (first + token) % kPageTokens, a.head_dim) : chunk * 16;
      const int64_t from = (at + token) * row + place;
      copy_async(tiles.key(half, j, lane), inside ? k + from : k, inside);
      copy_async(tiles.value(token, chunk), inside ? v + from : v, inside);
    }
  }
}

// Scores, weights and sums of one warp's 16 tokens for up to 8 heads; lane / 4 is the head.
template <int kDim, bool kCodes>
__device__ __forceinline__ void attend_warp(const WarpTiles<kDim, kCodes>& tiles, const uint4 (&q)[kDim / 32],
                                            int tokens, float scale, const TokenScales& of, Partial<kDim>& out) {
  const int lane = threadIdx.x % 32, head = lane / 4;
  float scores[2][4] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    score_keys<kDim, kCodes>(scores[half], q, [&](int j) { return load_shared(tiles.key(half, j, lane)); });
  }
  const WarpWeights weights = soften<kCodes>(scores, tokens, scale, of);
  if (lane % 4 == 0) {
    out.largest[head] = weights.largest;
    out.total[head] = weights.total;
  }
  ValueSums<kDim, kCodes> sums;
  sums.add(weights, [&](int token, int chunk) { return tiles.value(token, chunk); });
#pragma unroll
  for (int b = 0; b < kDim / 16; ++b) {
#pragma unroll
    for (int r = 0; r < 4; ++r) out.sums[sums.head(r)][sums.dim(b, r)] = sums.of[b][r];
  }
}

template <int kDim, bool kCodes>
__global__ void __launch_bounds__(kWarps * 32, 2) attend_decode_kernel(DecodeArguments a) {
  extern __shared__ uint4 shared[];
  __shared__ bool last;
  Partial<kDim>* partials = reinterpret_cast<Partial<kDim>*>(shared);  // of the warps
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  using T = WarpTiles<kDim, kCodes>;
  const T tiles{shared_address(partials + kWarps) + warp * T::kBytes};
  const int group = a.heads / a.kv_heads, size = a.head_dim + 2;  // of a part

  let_next_start();
  bool waited = false;
  // Parts of all rows and heads, one after the other.
  int item = blockIdx.x;
#pragma unroll 1
  for (int row = 0; row < a.rows; ++row) {
    const int length = load_index(a.lengths + row);
    const int32_t* pages = a.page_table + int64_t{load_index(a.sequences + row)} * a.pages;
    const int parts = (length + kSplitTokens - 1) / kSplitTokens, items = parts * a.kv_heads;
#pragma unroll 1
    for (; item < items; item += gridDim.x) {
      const int part = item % parts, kv_head = item / parts, first = part * kSplitTokens + warp * kWarpTokens;
      const int64_t page = first < length ? load_index(pages + first / kPageTokens) : 0;
      const int64_t at = cache_row(page, first % kPageTokens, kv_head, a.kv_heads, 1);
      // Tokens of earlier steps need no waiting; those of this step are among the last `rows`.
      const int old = waited ? INT32_MAX : max(0, length - a.rows);
      __syncwarp();
      fetch(a, tiles, at, first, 0, old, length, lane);
      if (!waited) {
        wait_for_previous();
        waited = true;
        fetch(a, tiles, at, first, old, INT32_MAX, length, lane);
      }
      commit_copies();
      TokenScales scales;
      if (kCodes) scales.load(a.k_scales + at, a.v_scales + at, length - first);

      const int64_t first_head = row * int64_t{a.heads} + int64_t{kv_head} * group;
#pragma unroll 1
      for (int head0 = 0; head0 < group; head0 += kHeads) {
        const int heads = min(kHeads, group - head0);
        uint4 q[kDim / 32];
#pragma unroll
        for (int j = 0; j < kDim / 32; ++j) {
          const int dim = query_dim<kCodes>(j);
          const bf16* from = a.q + row * a.q_stride + (int64_t{kv_head} * group + head0 + lane / 4) * a.head_dim + dim;
          const bool inside = lane / 4 < heads && dim < a.head_dim;
          q[j] = inside ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
          if (kCodes) q[j] = readied_for_codes(q[j]);
        }
        wait_for_copies<0>();
        __syncwarp();
        attend_warp<kDim>(tiles, q, length - first, a.scale, scales, partials[warp]);
        __syncthreads();
        // The warps' parts become one.
        for (int i = threadIdx.x; i < heads * a.head_dim; i += blockDim.x) {
          const int h = i / a.head_dim, d = i % a.head_dim;
          float most = -INFINITY, sum = 0, total = 0;
#pragma unroll
          for (int w = 0; w < kWarps; ++w) most = fmaxf(most, partials[w].largest[h]);
#pragma unroll
          for (int w = 0; w < kWarps; ++w) {
            const float factor = exp2f(partials[w].largest[h] - most);
            sum = fmaf(factor, partials[w].sums[h][d], sum);
            total = fmaf(factor, partials[w].total[h], total);
          }
          if (parts == 1) {
            store_float(a.out + row * a.out_stride + (int64_t{kv_head} * group + head0 + h) * a.head_dim + d,
                        sum / total);
            continue;
          }
          float* to = a.partials + ((first_head + head0 + h) * a.parts + part) * size;
          to[d] = sum;
          if (d == 0) {
            to[a.head_dim] = most;
            to[a.head_dim + 1] = total;
          }
        }
        __syncthreads();
      }
      if (parts == 1) continue;

      if (threadIdx.x == 0) {
        int32_t* counter = a.counters + row * a.kv_heads + kv_head;
        last = add_in_order(counter, 1) == parts - 1;
        if (last) *counter = 0;
      }
      __syncthreads();
      if (!last) continue;
      for (int i = threadIdx.x; i < group * a.head_dim; i += blockDim.x) {
        const int h = i / a.head_dim, d = i % a.head_dim;
        const float* from = a.partials + (first_head + h) * a.parts * size;
        store_float(a.out + row * a.out_stride + (int64_t{kv_head} * group + h) * a.head_dim + d,
                    add_parts(PlainParts{from, a.head_dim, d}, parts));
      }
    }
    item -= items;
  }
  if (!waited) wait_for_previous();
}

template <int kDim, bool kCodes>
void run(const Queue& queue, const DecodeArguments& a) {
  constexpr int kBytes = kWarps * (WarpTiles<kDim, kCodes>::kBytes + sizeof(Partial<kDim>));
  const auto kernel = attend_decode_kernel<kDim, kCodes>;
  static SharedMemory memory;
  memory.allow(reinterpret_cast<const void*>(kernel), kBytes);
  // Blocks without a part leave at once; where there are more parts than blocks, these take turns.
  const int64_t most = int64_t{queue.multiprocessors} * 2, items = int64_t{a.rows} * a.kv_heads * a.parts;
  launch(queue, kernel, static_cast<unsigned>(std::min(most, items)), kWarps * 32, kBytes, a);
}

template <bool kCodes>
void run(const Queue& queue, const DecodeArguments& a) {
  if (a.head_dim <= 64) return run<64, kCodes>(queue, a);
  run<128, kCodes>(queue, a);
}

}  // namespace

int64_t attend_decode_partials(int64_t slots, const AttentionShape& shape) {
  const int64_t parts = (slots + kSplitTokens - 1) / kSplitTokens;
  return kGemvRows * shape.heads * parts * (shape.head_dim + 2);
}

void attend_decode(const Queue& queue, Tensor q, const Step& step, KvLayer cache, const AttentionShape& shape,
                   DecodeScratch scratch, Tensor out) {
  CHECK(q.rows <= kGemvRows && shape.head_dim <= 128 && shape.head_dim % 8 == 0);
  CHECK(q.dtype == DType::kBF16 && out.dtype == DType::kBF16 && q.stride % 8 == 0);
  DecodeArguments a = {};
  a.q = q.row<bf16>(0);
  a.q_stride = q.stride;
  a.k = cache.k.data;
  a.v = cache.v.data;
  a.sequences = step.sequences.row<int32_t>(0);
  a.lengths = step.lengths.row<int32_t>(0);
  a.page_table = step.page_table.row<int32_t>(0);
  a.pages = static_cast<int>(step.page_table.cols);
  a.rows = static_cast<int>(q.rows);
  a.heads = shape.heads;
  a.kv_heads = shape.kv_heads;
  a.head_dim = shape.head_dim;
  a.scale = shape.scale * kLog2e;
  a.partials = scratch.partials;
  a.counters = scratch.counters;
  a.parts = (a.pages * kPageTokens + kSplitTokens - 1) / kSplitTokens;
  a.out = out.row<bf16>(0);
  a.out_stride = out.stride;
  a.k_scales = static_cast<bf16*>(cache.k_scales.data);
  a.v_scales = static_cast<bf16*>(cache.v_scales.data);
  if (!a.k_scales) return run<false>(queue, a);
  run<true>(queue, a);
}

}  // namespace vireo::cuda
