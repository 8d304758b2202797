// Attention of many rows on Hopper's warpgroup products (compute capability 9.0a), with a running softmax (FlashAttention-3, Shah et al.
// 2024): each warpgroup of a block takes 64 query rows of one head and walks the keys 128 at a time; one thread of the last group brings
// keys and values. While a tile's values are multiplied, the scores of the next are, and are softened. One kernel for spans of the vision
// tower, where keys and values lie beside the queries (head_dim 64 and 72), and for the paged cache, where each row sees a length of its own
// (head_dim 128).
// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "cuda/kernels.h"
#include "cuda/row_tiles.cuh"
#include "cuda/sm90/ring.cuh"
#include "cuda/sm90/tensor_map.h"
#include "cuda/sm90/warpgroup.cuh"

#pragma nv_diag_suppress 177  // declared and not used: in code for devices other than 9.0

namespace vireo::cuda {
namespace {

constexpr int kTeamRows = 64, kKeys = 128, kBoxRows = 64, kBoxBytes = kBoxRows * kBoxCols * 2;
constexpr int kBoxesOfKeys = kKeys / kBoxRows;
static_assert(kBoxRows == kPageTokens);

struct WideArguments {
  CUtensorMap q, k, v;
  int rows, heads, kv_heads;
  float scale;  // times log2(e)
  const int32_t *sequences, *lengths, *page_table;
  int pages;  // of a sequence
  bf16* out;
  int64_t out_stride;
};

// How a block is made for one head_dim. In shared memory lie queries of each team, then stages of keys, then of values; all as boxes of 64
// columns, whose rows are together. Boxes that reach behind a head have zeros there.
template <int kDim>
struct Wide {
  static constexpr int kTeams = kDim <= 72 ? 3 : 2, kStages = kDim == 64 ? 3 : 2;
  static constexpr int kRows = kTeams * kTeamRows, kThreads = (kTeams + 1) * 128;
  static constexpr int kRegisters = kTeams == 3 ? 160 : 240, kCopyRegisters = kTeams == 3 ? 32 : 24;
  static constexpr int kColumns = (kDim + kBoxCols - 1) / kBoxCols;  // boxes beside each other
  static constexpr int kColumnBytes = kKeys * kBoxCols * 2;          // of keys
  static constexpr int kTileBytes = kColumns * kColumnBytes, kQueryBytes = kColumns * kBoxBytes;
  // Columns of values in one product.
  static constexpr int kSumColumns = kDim == 72 ? 72 : 64, kSumCount = kDim / kSumColumns;
  static constexpr int kSharedBytes = 1024 + kTeams * kQueryBytes + 2 * kStages * kTileBytes;
};

constexpr int kMostStages = 3, kMostRows = 192;

// Rows of one sequence in a block, and the tiles of keys that they see.
struct Segment {
  int begin, end, keys, tiles;
};

struct WideBlock {
  Barrier queries, full_keys[kMostStages], full_values[kMostStages], empty_keys[kMostStages], empty_values[kMostStages];
  int lengths[kMostRows], sequences[kMostRows];
  Segment segments[kMostRows];
  int segment_count, tiles;
  int least;  // keys that every row sees, where there is one segment
};

__device__ __forceinline__ BarrierAddress barrier_at(const Barrier* barriers, int stage) {
  return shared_address(barriers + stage);
}

// Running softmax of the two rows that a lane has a part in: lane / 4 and lane / 4 + 8 of its warp's 16.
struct Softmax {
  float largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
  float keep[2];  // by which the sums so far are multiplied

  // Scores become weights. Row i does not see those from limit[i] on.
  template <bool kMasks>
  __device__ __forceinline__ void soften(float (&s)[64], float scale, const int (&limit)[2]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = largest[half];
#pragma unroll
      for (int j = 0; j < 16; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& v = s[j * 4 + half * 2 + i];
          if (kMasks && j * 8 + lane % 4 * 2 + i >= limit[half]) v = -INFINITY;
          most = fmaxf(most, v);
        }
      }
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
      // A row that sees nothing yet keeps weights of zero.
      const float base = kMasks && most == -INFINITY ? 0.0f : most * scale;
      keep[half] = exp2f(fmaf(largest[half], scale, -base));
      largest[half] = most;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& v = s[j * 4 + half * 2 + i];
          asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(fmaf(v, scale, -base)));
          sum += v;
        }
      }
      total[half] = total[half] * keep[half] + sum;
    }
  }
};

__device__ __forceinline__ void pack_weights(uint32_t (&p)[8][4], const float (&s)[64]) {
#pragma unroll
  for (int k = 0; k < 8; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) p[k][i] = pack_bf16(s[k * 8 + i * 2], s[k * 8 + i * 2 + 1]);
  }
}

template <int kDim>
__device__ __forceinline__ void score(float (&s)[64], uint32_t queries, uint32_t keys) {
#pragma unroll
  for (int k = 0; k < (kDim + 15) / 16; ++k) {
    const uint32_t column = k / 4, inside = k % 4 * 32;
    multiply_128(s, operand_at(queries + column * kBoxBytes + inside),
                 operand_at(keys + column * Wide<kDim>::kColumnBytes + inside), k > 0);
  }
}
template <int kDim>
using ValueSums = float[Wide<kDim>::kSumCount][Wide<kDim>::kSumColumns / 2];
template <int kDim>
__device__ __forceinline__ void add_values(ValueSums<kDim>& sums, const uint32_t (&p)[8][4], uint32_t values) {
  using W = Wide<kDim>;
#pragma unroll
  for (int column = 0; column < W::kSumCount; ++column) {
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      multiply_values(sums[column], p[k], values_at<W::kColumnBytes>(values + column * W::kColumnBytes + k * 16 * 128));
    }
  }
}

// Behind the end of a sequence a page holds what was there before, which may be anything: values must be zero where weights are. By all of
// a team; what another does at the same time is the same.
template <int kDim>
__device__ __forceinline__ void clear_values(uint32_t values, int keys) {
  for (int i = keys * 8 + threadIdx.x % 128; i < kKeys * 8; i += 128) {
#pragma unroll
    for (int c = 0; c < Wide<kDim>::kColumns; ++c) {
      asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(values + c * Wide<kDim>::kColumnBytes + i * 16),
                   "r"(0)
                   : "memory");
    }
  }
  order_copies();
  sync_barrier(kTeamBarrier + threadIdx.x / 128, 128);
}

// By one thread: the queries, then keys and values of all segments.
template <int kDim, bool kPaged>
__device__ __forceinline__ void bring_tiles(const WideArguments& a, const WideBlock& b, uint32_t shared, int row0) {
  using W = Wide<kDim>;
  const int head = RowTile<kPaged>::mine().head, kv_head = head / (a.heads / a.kv_heads);
  expect_bytes(barrier_at(&b.queries, 0), W::kTeams * W::kQueryBytes);
  for (int t = 0; t < W::kTeams; ++t) {
    for (int c = 0; c < W::kColumns; ++c) {
      copy_box(shared + t * W::kQueryBytes + c * kBoxBytes, &a.q, c * kBoxCols, head, row0 + t * kTeamRows,
               barrier_at(&b.queries, 0));
    }
  }
  const uint32_t keys = shared + W::kTeams * W::kQueryBytes, values = keys + W::kStages * W::kTileBytes;
  int at = 0;
#pragma unroll 1
  for (int n = 0; n < b.segment_count; ++n) {
    const Segment segment = b.segments[n];
    const int32_t* pages = a.page_table + (kPaged ? int64_t{b.sequences[segment.begin]} * a.pages : 0);
#pragma unroll 1
    for (int tile = 0; tile < segment.tiles; ++tile, ++at) {
      const int stage = at % W::kStages, round = at / W::kStages;
      int row[kBoxesOfKeys];
#pragma unroll
      for (int i = 0; i < kBoxesOfKeys; ++i) {
        const int box = tile * kBoxesOfKeys + i;
        row[i] = box * kBoxRows;
        if (!kPaged) continue;
        row[i] = (load_index(pages + min(box, a.pages - 1)) * a.kv_heads + kv_head) * kBoxRows;
      }
      const auto bring = [&](const CUtensorMap& map, uint32_t to, const Barrier* full, const Barrier* empty) {
        if (round > 0) wait_for(barrier_at(empty, stage), (round - 1) & 1);
        expect_bytes(barrier_at(full, stage), W::kTileBytes);
#pragma unroll
        for (int c = 0; c < W::kColumns; ++c) {
#pragma unroll
          for (int i = 0; i < kBoxesOfKeys; ++i) {
            copy_box(to + stage * W::kTileBytes + c * W::kColumnBytes + i * kBoxBytes, &map, c * kBoxCols,
                     kPaged ? 0 : kv_head, row[i], barrier_at(full, stage));
          }
        }
      };
      bring(a.k, keys, b.full_keys, b.empty_keys);
      bring(a.v, values, b.full_values, b.empty_values);
    }
  }
}

template <int kDim, bool kPaged>
__device__ __forceinline__ void attend_rows(const WideArguments& a, const WideBlock& b, uint32_t shared, int row0) {
  using W = Wide<kDim>;
  const int lane = threadIdx.x % 32, mine = threadIdx.x / 32 * 16 + lane / 4;  // my first row of the block
  const uint32_t queries = shared + threadIdx.x / 128 * W::kQueryBytes, keys = shared + W::kTeams * W::kQueryBytes,
                 values = keys + W::kStages * W::kTileBytes;
  const auto wait_full = [&](const Barrier* full, int at) {
    wait_for(barrier_at(full, at % W::kStages), at / W::kStages & 1);
  };
  const auto release = [&](const Barrier* empty, int at) {
    if (lane == 0) arrive(barrier_at(empty, at % W::kStages));
  };
  float s[64];
  ValueSums<kDim> sums = {};
  uint32_t p[8][4];
  Softmax softmax;
  wait_for(barrier_at(&b.queries, 0), 0);
  // Where in its segment a tile is, and what my rows see of it.
  int n = 0, tile = 0, length[2];
  const auto enter_segment = [&] {
    const Segment segment = b.segments[n];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = mine + i * 8;
      length[i] = !kPaged ? a.rows : r < segment.begin || r >= segment.end ? 0 : b.lengths[r];
    }
  };
  const auto soften = [&] {
    const int limit[2] = {length[0] - tile * kKeys, length[1] - tile * kKeys};
    if ((tile + 1) * kKeys > b.least) {
      softmax.soften<true>(s, a.scale, limit);
    } else {
      softmax.soften<false>(s, a.scale, limit);
    }
  };
  enter_segment();
  wait_full(b.full_keys, 0);
  begin_products();
  score<kDim>(s, queries, keys);
  commit_products();
  wait_for_products<0>();
  settle(s);
  release(b.empty_keys, 0);
  soften();
  pack_weights(p, s);
  const auto bring_values = [&](int at) {
    wait_full(b.full_values, at);
    const int keys_left = b.segments[n].keys - tile * kKeys;
    if (kPaged && keys_left < kKeys) clear_values<kDim>(values + at % W::kStages * W::kTileBytes, keys_left);
  };
  int at = 1;
#pragma unroll 1
  for (; at < b.tiles; ++at) {
    bring_values(at - 1);
    if (++tile == b.segments[n].tiles) {
      tile = 0;
      ++n;
      enter_segment();
    }
    wait_full(b.full_keys, at);
    begin_products();
    score<kDim>(s, queries, keys + at % W::kStages * W::kTileBytes);
    commit_products();
    add_values<kDim>(sums, p, values + (at - 1) % W::kStages * W::kTileBytes);
    commit_products();
    wait_for_products<1>();
    settle(s);
    release(b.empty_keys, at);
    soften();
    wait_for_products<0>();
#pragma unroll
    for (int c = 0; c < W::kSumCount; ++c) settle(sums[c]);
    release(b.empty_values, at - 1);
#pragma unroll
    for (int c = 0; c < W::kSumCount; ++c) {
#pragma unroll
      for (int i = 0; i < W::kSumColumns / 2; ++i) sums[c][i] *= softmax.keep[i / 2 % 2];
    }
    pack_weights(p, s);
  }
  bring_values(at - 1);
  begin_products();
  add_values<kDim>(sums, p, values + (at - 1) % W::kStages * W::kTileBytes);
  commit_products();
  wait_for_products<0>();
#pragma unroll
  for (int c = 0; c < W::kSumCount; ++c) settle(sums[c]);

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = softmax.total[half];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    const int r = row0 + mine + half * 8;
    if (r >= a.rows) continue;
    const float scale = 1 / total;
    bf16* to = a.out + r * a.out_stride + RowTile<kPaged>::mine().head * kDim + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      const float* v = sums[j * 8 / W::kSumColumns] + j * 8 % W::kSumColumns / 2 + half * 2;
      *reinterpret_cast<uint32_t*>(to + j * 8) = pack_bf16(v[0] * scale, v[1] * scale);
    }
  }
}

// What the block's rows see.
template <int kDim, bool kPaged>
__device__ __forceinline__ void find_segments(const WideArguments& a, WideBlock& b, int row0) {
  const int rows = min(Wide<kDim>::kRows, a.rows - row0);
  const auto tiles_for = [](int keys) { return (keys + kKeys - 1) / kKeys; };
  if (!kPaged) {
    if (threadIdx.x > 0) return;
    b.segments[0] = {0, rows, a.rows, tiles_for(a.rows)};
    b.segment_count = 1;
    b.tiles = tiles_for(a.rows);
    b.least = a.rows;
    return;
  }
  if (threadIdx.x < rows) {
    b.sequences[threadIdx.x] = load_index(a.sequences + row0 + threadIdx.x);
    b.lengths[threadIdx.x] = load_index(a.lengths + row0 + threadIdx.x);
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  int count = 0, tiles = 0, least = INT32_MAX;
  for (int begin = 0, end; begin < rows; begin = end) {
    int keys = 1;
    for (end = begin; end < rows && b.sequences[end] == b.sequences[begin]; ++end) {
      keys = max(keys, b.lengths[end]);
      least = min(least, b.lengths[end]);
    }
    b.segments[count++] = {begin, end, keys, tiles_for(keys)};
    tiles += tiles_for(keys);
  }
  b.segment_count = count;
  b.tiles = tiles;
  // Rows behind the end of a block that is not full see nothing that counts.
  b.least = count == 1 ? least : 0;
}

// grid.x: rows, grid.y: heads.
template <int kDim, bool kPaged>
__global__ void __launch_bounds__(Wide<kDim>::kThreads, 1) attend_wide_kernel(const __grid_constant__ WideArguments a) {
#ifdef VIREO_HAS_WARPGROUPS
  using W = Wide<kDim>;
  extern __shared__ uint4 shared_memory[];
  __shared__ WideBlock block;
  const uint32_t shared = (shared_address(shared_memory) + 1023) & ~1023u;
  if (threadIdx.x == 0) {
    start_barrier(barrier_at(&block.queries, 0), 1);
    for (int s = 0; s < W::kStages; ++s) {
      start_barrier(barrier_at(block.full_keys, s), 1);
      start_barrier(barrier_at(block.full_values, s), 1);
      start_barrier(barrier_at(block.empty_keys, s), W::kTeams * 4);
      start_barrier(barrier_at(block.empty_values, s), W::kTeams * 4);
    }
    publish_barriers();
  }
  let_next_start();
  wait_for_previous();
  const int row0 = RowTile<kPaged>::mine().tile * W::kRows;
  find_segments<kDim, kPaged>(a, block, row0);
  __syncthreads();
  if (threadIdx.x / 128 == W::kTeams) {
    leave_registers<W::kCopyRegisters>();
    if (threadIdx.x == W::kTeams * 128) bring_tiles<kDim, kPaged>(a, block, shared, row0);
  } else {
    take_registers<W::kRegisters>();
    attend_rows<kDim, kPaged>(a, block, shared, row0);
  }
#endif
}

template <int kDim, bool kPaged>
void run(const Queue& queue, const WideArguments& a) {
  using W = Wide<kDim>;
  static SharedMemory memory;
  memory.allow(reinterpret_cast<const void*>(attend_wide_kernel<kDim, kPaged>), W::kSharedBytes);
  launch(queue, attend_wide_kernel<kDim, kPaged>, RowTile<kPaged>::grid((a.rows + W::kRows - 1) / W::kRows, a.heads),
         W::kThreads, W::kSharedBytes, a);
}

WideArguments arguments(Tensor q, Tensor k, Tensor v, const AttentionShape& shape, Tensor out) {
  CHECK(q.dtype == DType::kBF16 && out.dtype == DType::kBF16 && out.stride % 2 == 0);
  WideArguments a = {tensor_map(q, shape.head_dim, kBoxRows), tensor_map(k, shape.head_dim, kBoxRows),
                     tensor_map(v, shape.head_dim, kBoxRows)};
  a.rows = static_cast<int>(q.rows);
  a.heads = shape.heads;
  a.kv_heads = shape.kv_heads;
  a.scale = shape.scale * kLog2e;
  a.out = out.row<bf16>(0);
  a.out_stride = out.stride;
  return a;
}

// A cache as rows of one head.
Tensor rows_of_heads(Tensor t, const AttentionShape& shape) {
  return {t.data, t.dtype, t.rows * shape.kv_heads, shape.head_dim, shape.head_dim};
}

bool fits(const Queue& queue, std::initializer_list<Tensor> tensors) {
  for (const Tensor& t : tensors) {
    if (t.stride % 8 != 0 || reinterpret_cast<uintptr_t>(t.data) % 16 != 0) return false;
  }
  return queue.warpgroups && tensor_map_encoder();
}

}  // namespace

PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  static const auto encoder = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = {};
#if CUDART_VERSION >= 12050
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
#else
    const cudaError_t status = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result);
#endif
    const bool found = status == cudaSuccess && result == cudaDriverEntryPointSuccess;
    return found ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function) : nullptr;
  }();
  return encoder;
}

CUtensorMap tensor_map(Tensor t, int head_dim, int box_rows) {
  CUtensorMap map;
  const auto size = [](int64_t n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t sizes[3] = {size(head_dim), size(t.cols / head_dim), size(t.rows)};
  const cuuint64_t strides[2] = {size(head_dim) * 2, size(t.stride) * 2};
  const cuuint32_t box[3] = {kBoxCols, 1, static_cast<cuuint32_t>(box_rows)}, steps[3] = {1, 1, 1};
  CHECK(tensor_map_encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, t.data, sizes, strides, box, steps,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  return map;
}

bool attends_wide(const Queue& queue, const AttentionShape& shape, Tensor q, Tensor k, Tensor v) {
  return (shape.head_dim == 64 || shape.head_dim == 72) && shape.heads == shape.kv_heads && q.rows >= kTeamRows &&
         fits(queue, {q, k, v});
}

void attend_wide(const Queue& queue, Tensor q, Tensor k, Tensor v, const AttentionShape& shape, Tensor out) {
  CHECK(k.rows == q.rows && v.rows == q.rows);
  const WideArguments a = arguments(q, k, v, shape, out);
  if (shape.head_dim == 64) return run<64, false>(queue, a);
  run<72, false>(queue, a);
}

// Fewer rows leave a team of the block without work.
bool attends_pages_wide(const Queue& queue, const AttentionShape& shape, Tensor q) {
  return shape.head_dim == 128 && q.rows >= Wide<128>::kRows && fits(queue, {q});
}

void attend_pages_wide(const Queue& queue, Tensor q, const Step& step, KvLayer cache, const AttentionShape& shape,
                       Tensor out) {
  WideArguments a = arguments(q, rows_of_heads(cache.k, shape), rows_of_heads(cache.v, shape), shape, out);
  a.sequences = step.sequences.row<int32_t>(0);
  a.lengths = step.lengths.row<int32_t>(0);
  a.page_table = step.page_table.row<int32_t>(0);
  a.pages = static_cast<int>(step.page_table.cols);
  run<128, true>(queue, a);
}

}  // namespace vireo::cuda
