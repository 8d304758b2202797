// Attention of many rows on the tensor cores, with a running softmax (FlashAttention, Dao et al. 2022): a block takes 64 or 128 query
// rows of one head, each of its four warps one or two times 16, and walks the keys 64 at a time. One kernel for spans of the vision
// tower, where keys and values lie beside the queries, and for the paged cache, where each row sees a length of its own. The
// more rows a warp has, the less often keys and values are read from shared memory; a row's bits do not depend on it.
// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "cuda/kernels.h"
#include "cuda/row_tiles.cuh"
#include "cuda/tensor_core.cuh"

namespace vireo::cuda {
namespace {

constexpr int kTileKeys = 64, kThreads = 128;
static_assert(kTileKeys == kPageTokens);

struct TileArguments {
  const bf16* q;
  int64_t q_stride;
  const bf16 *k, *v;
  int64_t kv_stride;  // of a token; in pages head_dim
  int rows, heads, kv_heads, head_dim;
  float scale;  // times log2(e)
  const int32_t *sequences, *lengths, *page_table;
  int pages;
  bf16* out;
  int64_t out_stride;
};

// kDim: head_dim rounded up; a row of keys or values takes 8 elements more, so that ldmatrix meets no bank twice.
template <int kDim>
struct Tile {
  static constexpr int kRow = kDim + 8;
  static constexpr int kBytes = kTileKeys * kRow * 2;
};

template <int kDim>
__device__ __forceinline__ void fetch_tile(uint32_t to, const bf16* from, int64_t stride, int tokens, int head_dim) {
  constexpr int kChunks = kDim / 8;
#pragma unroll
  for (int i = 0; i < kTileKeys * kChunks / kThreads; ++i) {
    const int at = i * kThreads + threadIdx.x, token = at / kChunks, chunk = at % kChunks;
    const bool inside = token < tokens && chunk * 8 < head_dim;
    copy_async(to + token * Tile<kDim>::kRow * 2 + chunk * 16, inside ? from + token * stride + chunk * 8 : from,
               inside);
  }
}

// Running softmax of the two rows of 16 that a lane has a part in: lane / 4 and lane / 4 + 8.
template <int kDim>
struct State {
  float sums[kDim / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {};
};

__device__ __forceinline__ float exp2_fast(float v) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v));
  return result;
}

// Products become weights. Row i of the lane sees keys below limit[i]; without kMasked all.
template <bool kMasked, int kDim>
__device__ __forceinline__ void weigh(State<kDim>& s, float (&scores)[kTileKeys / 8][4], const int (&limit)[2],
                                      float scale) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = s.largest[half];
#pragma unroll
    for (int j = 0; j < kTileKeys / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& v = scores[j][2 * half + i];
        if (kMasked && j * 8 + lane % 4 * 2 + i >= limit[half]) v = -INFINITY;
        most = fmaxf(most, v);
      }
    }
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
    // A row that sees nothing yet keeps weights of zero.
    const float base = most == -INFINITY ? 0.0f : most * scale;
    const float keep = exp2_fast(fmaf(s.largest[half], scale, -base));
    s.largest[half] = most;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kTileKeys / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& v = scores[j][2 * half + i];
        v = exp2_fast(fmaf(v, scale, -base));
        sum += v;
      }
    }
    s.total[half] = fmaf(s.total[half], keep, sum);
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      s.sums[d][2 * half] *= keep;
      s.sums[d][2 * half + 1] *= keep;
    }
  }
}

// 64 keys more, for kM times 16 rows.
template <int kM, int kDim>
__device__ __forceinline__ void attend_tile(State<kDim> (&s)[kM], const uint32_t (&q)[kM][kDim / 16][4], uint32_t keys,
                                            uint32_t values, const int (&limit)[kM][2], float scale) {
  const int lane = threadIdx.x % 32;
  constexpr int kRowBytes = Tile<kDim>::kRow * 2;
  // Matrices: both halves of k of keys 0 to 7, then of 8 to 15. What one product takes must lie in registers beside each other.
  const uint32_t my_keys = keys + (lane / 16 * 8 + lane % 8) * kRowBytes + lane / 8 % 2 * 16;
  float scores[kM][kTileKeys / 8][4] = {};
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d) {
#pragma unroll
    for (int j = 0; j < kTileKeys / 16; ++j) {
      uint32_t k[4];
      load_matrices(k, my_keys + j * 16 * kRowBytes + d * 32);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add(scores[m][2 * j], q[m][d], k[0], k[1]);
        multiply_add(scores[m][2 * j + 1], q[m][d], k[2], k[3]);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    if (__any_sync(kAllLanes, min(limit[m][0], limit[m][1]) < kTileKeys)) {
      weigh<true>(s[m], scores[m], limit[m], scale);
    } else {
      weigh<false>(s[m], scores[m], limit[m], scale);
    }
  }
#pragma unroll
  for (int j = 0; j < kTileKeys / 16; ++j) {
    uint32_t p[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        p[m][i] = pack_bf16(scores[m][2 * j + i / 2][i % 2 * 2], scores[m][2 * j + i / 2][i % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      uint32_t v[4];
      load_matrices_turned(v, values + (j * 16 + lane % 16) * kRowBytes + d * 32 + lane / 16 * 16);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add(s[m].sums[2 * d], p[m], v[0], v[1]);
        multiply_add(s[m].sums[2 * d + 1], p[m], v[2], v[3]);
      }
    }
  }
}

template <int kDim, int kM, bool kPaged>
__global__ void __launch_bounds__(kThreads, 2) attend_tiles_kernel(TileArguments a) {
  constexpr int kTileRows = kM * 64;
  extern __shared__ uint4 shared[];
  __shared__ int sequences[kTileRows], lengths[kTileRows];
  const uint32_t base = shared_address(shared);
  const auto keys_at = [&](int stage) { return base + stage * 2 * Tile<kDim>::kBytes; };
  const auto place = RowTile<kPaged>::mine();
  const int row0 = place.tile * kTileRows, head = place.head;
  const int kv_head = head / (a.heads / a.kv_heads);
  const int lane = threadIdx.x % 32, mine = threadIdx.x / 32 * kM * 16 + lane / 4;  // my first row of the tile
  const int rows = min(kTileRows, a.rows - row0);

  let_next_start();
  wait_for_previous();
  if (kPaged) {
    for (int i = threadIdx.x; i < kTileRows; i += kThreads) {
      const int r = row0 + min(i, rows - 1);
      sequences[i] = a.sequences[r];
      lengths[i] = a.lengths[r];
    }
    __syncthreads();
  }
  uint32_t q[kM][kDim / 16][4];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = mine + m * 16 + i % 2 * 8, c = d * 16 + i / 2 * 8 + lane % 4 * 2;
        const bf16* from = a.q + static_cast<int64_t>(row0 + r) * a.q_stride + int64_t{head} * a.head_dim + c;
        q[m][d][i] = r < rows && c < a.head_dim ? *reinterpret_cast<const uint32_t*>(from) : 0;
      }
    }
  }

  State<kDim> state[kM];
  // Rows of one sequence at a time; in a span all rows are of one.
  for (int begin = 0; begin < rows;) {
    int end = rows, keys = a.rows;
    if (kPaged) {
      keys = 0;
      for (end = begin; end < rows && sequences[end] == sequences[begin]; ++end) keys = max(keys, lengths[end]);
    }
    const int tiles = (keys + kTileKeys - 1) / kTileKeys;
    const auto fetch = [&](int tile) {
      const uint32_t to = keys_at(tile % 2);
      const int tokens = min(kTileKeys, keys - tile * kTileKeys);
      int64_t at;
      if (kPaged) {
        const int64_t page = a.page_table[int64_t{sequences[begin]} * a.pages + tile];
        at = (page * a.kv_heads + kv_head) * kPageTokens * a.head_dim;
      } else {
        at = int64_t{tile} * kTileKeys * a.kv_stride + int64_t{kv_head} * a.head_dim;
      }
      fetch_tile<kDim>(to, a.k + at, a.kv_stride, tokens, a.head_dim);
      fetch_tile<kDim>(to + Tile<kDim>::kBytes, a.v + at, a.kv_stride, tokens, a.head_dim);
    };
    fetch(0);
    commit_copies();
    for (int tile = 0; tile < tiles; ++tile) {
      if (tile + 1 < tiles) fetch(tile + 1);
      commit_copies();
      wait_for_copies<1>();
      __syncthreads();
      int limit[kM][2];
#pragma unroll
      for (int i = 0; i < 2 * kM; ++i) {
        const int r = mine + 8 * i;
        limit[i / 2][i % 2] = r < begin || r >= end ? 0 : (kPaged ? lengths[r] : keys) - tile * kTileKeys;
      }
      attend_tile<kM>(state, q, keys_at(tile % 2), keys_at(tile % 2) + Tile<kDim>::kBytes, limit, a.scale);
      __syncthreads();
    }
    begin = end;
  }
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) {
    const State<kDim>& of = state[i / 2];
    const int half = i % 2, r = mine + 8 * i;
    float total = of.total[half];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    if (r >= rows) continue;
    bf16* to = a.out + static_cast<int64_t>(row0 + r) * a.out_stride + int64_t{head} * a.head_dim;
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      const int c = d * 8 + lane % 4 * 2;
      if (c >= a.head_dim) continue;
      *reinterpret_cast<uint32_t*>(to + c) = pack_bf16(of.sums[d][2 * half] / total, of.sums[d][2 * half + 1] / total);
    }
  }
}

template <int kDim, int kM, bool kPaged>
void launch_tiles(const Queue& queue, const TileArguments& a) {
  const auto kernel = attend_tiles_kernel<kDim, kM, kPaged>;
  constexpr int kBytes = 4 * Tile<kDim>::kBytes, kTileRows = kM * 64;
  static SharedMemory memory;
  memory.allow(reinterpret_cast<const void*>(kernel), kBytes);
  launch(queue, kernel, RowTile<kPaged>::grid((a.rows + kTileRows - 1) / kTileRows, a.heads), kThreads, kBytes, a);
}

// Twice the rows where there are enough of them, and registers.
template <int kDim, bool kPaged>
void run(const Queue& queue, const TileArguments& a) {
  const bool many = int64_t{a.rows} * a.heads >= int64_t{queue.multiprocessors} * 2 * 128;
  if constexpr (!kPaged && kDim <= 80) {
    if (many) return launch_tiles<kDim, 2, false>(queue, a);
  }
  launch_tiles<kDim, 1, kPaged>(queue, a);
}

template <bool kPaged>
void run(const Queue& queue, const TileArguments& a) {
  CHECK(a.head_dim % 8 == 0 && a.head_dim <= 128 && a.q_stride % 8 == 0 && a.kv_stride % 8 == 0 &&
        a.out_stride % 2 == 0);
  if (a.head_dim <= 64) return run<64, kPaged>(queue, a);
  if (a.head_dim <= 80) return run<80, kPaged>(queue, a);
  run<128, kPaged>(queue, a);
}

TileArguments arguments(Tensor q, const AttentionShape& shape, Tensor out) {
  CHECK(q.dtype == DType::kBF16 && out.dtype == DType::kBF16);
  TileArguments a = {};
  a.q = q.row<bf16>(0);
  a.q_stride = q.stride;
  a.rows = static_cast<int>(q.rows);
  a.heads = shape.heads;
  a.kv_heads = shape.kv_heads;
  a.head_dim = shape.head_dim;
  a.scale = shape.scale * kLog2e;
  a.out = out.row<bf16>(0);
  a.out_stride = out.stride;
  return a;
}

}  // namespace

void attend_pages(const Queue& queue, Tensor q, const Step& step, KvLayer cache, const AttentionShape& shape,
                  Tensor out) {
  TileArguments a = arguments(q, shape, out);
  a.k = cache.k.row<bf16>(0);
  a.v = cache.v.row<bf16>(0);
  a.kv_stride = shape.head_dim;
  a.sequences = step.sequences.row<int32_t>(0);
  a.lengths = step.lengths.row<int32_t>(0);
  a.page_table = step.page_table.row<int32_t>(0);
  a.pages = static_cast<int>(step.page_table.cols);
  run<true>(queue, a);
}

void attend_span(const Queue& queue, Tensor q, Tensor k, Tensor v, const AttentionShape& shape, Tensor out) {
  CHECK(k.dtype == DType::kBF16 && v.dtype == DType::kBF16 && k.stride == v.stride);
  TileArguments a = arguments(q, shape, out);
  a.k = k.row<bf16>(0);
  a.v = v.row<bf16>(0);
  a.kv_stride = k.stride;
  run<false>(queue, a);
}

}  // namespace vireo::cuda
