// Attention of up to 8 rows over the paged cache where the device has bulk copies (compute capability 9.0): as attend_decode.cu, but keys
// and values arrive on barriers, a block takes a run of parts, and for a single row norm, rotation and append are done here too: every
// block needs the few queries, and one warp the new key.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/attend_bulk.cuh"

#include <algorithm>

#include "base/check.h"

namespace vireo::cuda {
namespace {

struct BulkArguments {
  const bf16* q;  // with `fused`, rows of q, k and v
  int64_t q_stride;
  bool fused;
  const float *q_weight, *k_weight, *cos_sin;
  float q_eps, k_eps;
  void *k, *v;  // bf16, or codes with scales
  bf16 *k_scales, *v_scales;
  const int32_t *sequences, *lengths, *slots, *page_table;
  int pages;  // of a sequence
  int rows, heads, kv_heads;
  float scale;  // times log2(e)
  float* partials;
  int32_t* counters;
  int parts;  // room for parts of one row and head
  int most_blocks;
  bf16* out;
  int64_t out_stride;
};

// Shared memory of a block: for each warp tiles that are filled in turns, then the queries.
template <int kDim, bool kCodes>
struct Room {
  static constexpr int kTiles = kPartWarps * WarpTile<kDim, kCodes>::kBytes;
  static int bytes(int turns) { return turns * kTiles + Queries<kDim, kCodes>::kBytes; }
};
constexpr int kMostTurns = 3;

// grid.x: rows and KV heads; grid.y: runs of parts, of which each warp takes its tokens before the block meets.
template <int kDim, bool kCodes>
__global__ void __launch_bounds__(kPartWarps * 32, 2) attend_bulk_kernel(BulkArguments a, int turns) {
#if __CUDA_ARCH__ >= 900
  using R = Room<kDim, kCodes>;
  using T = WarpTile<kDim, kCodes>;
  constexpr int kChunks = kDim / 8, kPieces = T::kRow / 16;  // of 8 elements; of 16 bytes
  extern __shared__ __align__(kStageAlignment) uint4 shared[];
  __shared__ Barrier arrived[kPartWarps][kMostTurns];
  __shared__ bool last;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = blockIdx.x / a.kv_heads, kv_head = blockIdx.x % a.kv_heads, group = a.heads / a.kv_heads;
  const int length = load_index(a.lengths + row);
  const PartRuns runs = runs_of(length, a.kv_heads, a.most_blocks);
  const int run = blockIdx.y, count = min(runs.of_run, runs.parts - run * runs.of_run);
  if (run >= runs.runs) {
    let_next_start();
    wait_for_previous();
    return;
  }
  char* tiles = reinterpret_cast<char*>(shared);
  const auto tile_at = [&](int w, int turn) { return tiles + turn * R::kTiles + w * T::kBytes; };
  const Queries<kDim, kCodes> queries = {reinterpret_cast<bf16*>(tiles + turns * R::kTiles)};
  if (lane < turns) {
    start_barrier(shared_address(&arrived[warp][lane]), 1);
    publish_barriers();
  }
  __syncwarp();

  const int32_t* pages = a.page_table + int64_t{load_index(a.sequences + row)} * a.pages;
  // Tokens of earlier steps are there; those of this step, the last `rows` at most, are not before the wait.
  const int old = max(0, length - a.rows);
  const int kv = lane / 16, token = lane % 16;  // what this lane copies: a key or a value
  const uint64_t policy = read_once();
  const auto first_of = [&](int i) { return (run * runs.of_run + i) * kSplitTokens + warp * kWarpTokens; };
  const auto cache_of = [&](int t) {
    const int64_t page = load_index(pages + t / kPageTokens);
    return cache_row(page, t % kPageTokens, kv_head, a.kv_heads, 1);
  };
  const auto row_at = [&](void* cache, int64_t at) { return static_cast<char*>(cache) + at * T::kRow; };
  const auto load_scales = [&](TokenScales& scales, int first, int tokens) {
    if (!kCodes || tokens <= 0) return;
    const int64_t at = cache_of(first);
    scales.load(a.k_scales + at, a.v_scales + at, tokens);
  };
  // Sends for the warp's old tokens of part i and clears the rows of those beyond the length.
  const auto send = [&](int i) {
    const int turn = i % turns, first = first_of(i), t = first + token;
    const BarrierAddress full = shared_address(&arrived[warp][turn]);
    if (lane == 0) expect_bytes(full, max(0, min(kWarpTokens, old - first)) * 2 * T::kRow);
    __syncwarp();
    char* to = tile_at(warp, turn) + kv * T::kValues + token * T::kPitch;
    if (kCodes ? token == 0 && first < old : t < old) {
      const int tokens =
          kCodes ? min(kWarpTokens, old - first) : 1;  // those that lie in a tile as they do in the cache
      copy_bulk(shared_address(to), row_at(kv ? a.v : a.k, cache_of(t)), tokens * T::kRow, full, policy);
    } else if (t >= length && !kCodes) {  // any code is a number, and what does not count has weight zero
#pragma unroll 1
      for (int c = 0; c < kPieces; ++c) reinterpret_cast<uint4*>(to)[c] = uint4{0, 0, 0, 0};
    }
  };
  const bf16* q = a.q + row * a.q_stride;
  // The tokens of this step: lanes 0 to 15 bring a key, the others a value.
  const auto bring_new = [&](int first, char* tile, TokenScales& scales, const HeadPairs& k_weight) {
#pragma unroll 1
    for (int t = max(first, old); t < min(first + kWarpTokens, length); ++t) {
      char* to = tile + (t - first) * T::kPitch;
      if (a.fused) {
        const bf16* key = q + (int64_t{a.heads} + kv_head) * kDim;
        const bf16* value = key + int64_t{a.kv_heads} * kDim;
        const int slot = a.slots[row];
        const uint4 v = lane < kChunks ? reinterpret_cast<const uint4*>(value)[lane] : uint4{0, 0, 0, 0};
        const HeadPairs pairs = norm_rope(PlainHead{key}, k_weight, a.k_eps, head_angles(a.cos_sin, kDim), kDim);
        const int64_t at = slot < 0 ? -1 : cache_row(slot / kPageTokens, slot % kPageTokens, kv_head, a.kv_heads, 1);
        const float of_key = NewRow<kDim, kCodes>{to, a.k, a.k_scales, at, t - first}.put(pairs),
                    of_value = NewRow<kDim, kCodes>{to + T::kValues, a.v, a.v_scales, at, t - first}.put(v);
        if (kCodes) scales.set(t - first, of_key, of_value);
      } else if (token < kPieces) {
        const char* from = row_at(kv ? a.v : a.k, cache_of(t));
        reinterpret_cast<uint4*>(to + kv * T::kValues)[token] = reinterpret_cast<const uint4*>(from)[token];
      }
    }
  };
  for (int i = 0; i < min(turns, count); ++i) send(i);
  HeadPairs q_weight = {}, k_weight = {};
  if (a.fused && warp < group) q_weight = load_head(a.q_weight, kDim);
  const int my_last = first_of(count - 1);
  if (a.fused && my_last < length && length <= my_last + kWarpTokens) k_weight = load_head(a.k_weight, kDim);
  let_next_start();
  // Of codes the scales are read a part ahead; those of this step's tokens after the wait.
  const int readable = a.fused ? old : length;
  TokenScales next;
  load_scales(next, first_of(0), old - first_of(0));

  wait_for_previous();
  if (warp < group) {
    const bf16* head = q + (int64_t{kv_head} * group + warp) * kDim;
    if (a.fused) {
      queries.put(warp, norm_rope(PlainHead{head}, q_weight, a.q_eps, head_angles(a.cos_sin, kDim), kDim));
    } else if (lane < kChunks) {
      queries.put(warp, lane, reinterpret_cast<const uint4*>(head)[lane]);
    }
  }
  if (!a.fused) load_scales(next, first_of(0), length - first_of(0));
  __syncthreads();

  WarpSums<kDim, kCodes> sums;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    const int turn = i % turns, first = first_of(i);
    TokenScales scales = next;
    if (i + 1 < count) load_scales(next, first_of(i + 1), readable - first_of(i + 1));
    char* tile = tile_at(warp, turn);
    bring_new(first, tile, scales, k_weight);
    __syncwarp();
    wait_for(shared_address(&arrived[warp][turn]), i / turns & 1);
    if (first < length) sums.add(queries, group, shared_address(tile), length - first, a.scale, scales, i == 0);
    if (i + turns >= count) continue;
    order_copies();
    __syncwarp();
    send(i + turns);
  }
  const auto parts_of = [&](int w) { return reinterpret_cast<float*>(tile_at(w, 0)); };
  sums.put(group, parts_of(warp));
  __syncthreads();
  // The warps' sums become one.
  const int64_t first_head = row * int64_t{a.heads} + int64_t{kv_head} * group;
  bf16* out = a.out + row * a.out_stride + int64_t{kv_head} * group * kDim;
#pragma unroll 1
  for (int i = threadIdx.x; i < group * kDim; i += blockDim.x) {
    const int h = i / kDim, d = i % kDim;
    const JoinedPart p = join_warps<kDim, kCodes>(h, d, parts_of);
    if (runs.runs == 1) {
      store_float(out + i, p.sum / p.total);
      continue;
    }
    float* to = a.partials + ((first_head + h) * a.parts + run) * T::kPart;
    to[d] = p.sum;
    if (d == 0) *reinterpret_cast<float2*>(to + kDim) = {p.most, p.total};
  }
  if (runs.runs == 1) return;
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* counter = a.counters + blockIdx.x;
    last = add_in_order(counter, 1) == runs.runs - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  if (!last) return;
#pragma unroll 1
  for (int i = threadIdx.x; i < group * kDim; i += blockDim.x) {
    const int h = i / kDim, d = i % kDim;
    const float* from = a.partials + (first_head + h) * a.parts * T::kPart;
    store_float(out + i, add_parts(PlainParts{from, kDim, d}, runs.runs));
  }
#endif
}

template <int kDim, bool kCodes>
void run(const Queue& queue, const BulkArguments& a) {
  using R = Room<kDim, kCodes>;
  const auto kernel = attend_bulk_kernel<kDim, kCodes>;
  static SharedMemory memory;
  memory.allow(reinterpret_cast<const void*>(kernel), R::bytes(kMostTurns));
  // Blocks without a run, the last ones, leave at once. With one row there is a block for each multiprocessor.
  const int most_runs = std::min(a.parts, std::max(1, a.most_blocks / a.kv_heads));
  const int turns = a.rows > 1 ? 1 : std::min(kMostTurns, (a.parts + most_runs - 1) / most_runs);
  launch(queue, kernel, dim3(a.rows * a.kv_heads, most_runs), kPartWarps * 32, R::bytes(turns), a, turns);
}

template <int kDim>
void run(const Queue& queue, const BulkArguments& a) {
  a.k_scales ? run<kDim, true>(queue, a) : run<kDim, false>(queue, a);
}

}  // namespace

bool attends_in_bulk(const Queue& queue, const AttentionShape& shape) {
  return queue.bulk_copies && shape.heads / shape.kv_heads <= kGroupHeads &&
         (shape.head_dim == 64 || shape.head_dim == 128);
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
  a.k = cache.k.data;
  a.v = cache.v.data;
  a.k_scales = static_cast<bf16*>(cache.k_scales.data);
  a.v_scales = static_cast<bf16*>(cache.v_scales.data);
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
  a.most_blocks = queue.multiprocessors;
  a.out = out.row<bf16>(0);
  a.out_stride = out.stride;
  if (shape.head_dim == 64) return run<64>(queue, a);
  run<128>(queue, a);
}

}  // namespace vireo::cuda
