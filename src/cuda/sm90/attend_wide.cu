// Attention of a span on Hopper's warpgroup products (compute capability 9.0a), head_dim 64, with a running softmax
// (FlashAttention-3, Shah et al. 2024): a block takes 192 query rows of one head, each of three warpgroups 64, and walks the keys 128 at a
// time. One thread of a fourth brings keys and values. While a tile's values are multiplied, the scores of the next are, and are softened.
// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "cuda/kernels.h"
#include "cuda/sm90/ring.cuh"
#include "cuda/sm90/tensor_map.h"
#include "cuda/sm90/warpgroup.cuh"

#pragma nv_diag_suppress 177  // declared and not used: in code for devices other than 9.0

namespace vireo::cuda {
namespace {

constexpr int kTeamRows = 64, kTeams = 3, kRows = kTeams * kTeamRows, kKeys = 128, kDim = 64, kStages = 3;
constexpr int kThreads = (kTeams + 1) * 128, kUserWarpsOfAll = kTeams * 4;
constexpr int kBoxRows = 64, kBoxBytes = kBoxRows * kBoxCols * 2;
constexpr int kTileBytes = kKeys * kDim * 2, kQueryBytes = kRows * kDim * 2;
constexpr int kSharedBytes = 1024 + kQueryBytes + 2 * kStages * kTileBytes;

struct WideArguments {
  CUtensorMap q, k, v;
  int rows;
  float scale;  // times log2(e)
  bf16* out;
  int64_t out_stride;
};

struct WideBarriers {
  Barrier queries, full_keys[kStages], full_values[kStages], empty_keys[kStages], empty_values[kStages];
};

// Running softmax of the two rows that a lane has a part in: lane / 4 and lane / 4 + 8 of its warp's 16.
struct Softmax {
  float largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
  float keep[2];  // by which the sums so far are multiplied

  // Scores become weights. Those from `limit` on do not count.
  template <bool kMasks>
  __device__ __forceinline__ void soften(float (&s)[64], float scale, int limit) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = largest[half];
#pragma unroll
      for (int j = 0; j < 16; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& v = s[j * 4 + half * 2 + i];
          if (kMasks && j * 8 + lane % 4 * 2 + i >= limit) v = -INFINITY;
          most = fmaxf(most, v);
        }
      }
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
      keep[half] = exp2f((largest[half] - most) * scale);
      largest[half] = most;
      const float base = most * scale;
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

__device__ __forceinline__ void score(float (&s)[64], uint32_t queries, uint32_t keys) {
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) multiply_128(s, operand_at(queries + k * 32), operand_at(keys + k * 32), k > 0);
}
__device__ __forceinline__ void add_values(float (&sums)[32], const uint32_t (&p)[8][4], uint32_t values) {
#pragma unroll
  for (int k = 0; k < kKeys / 16; ++k) multiply_64(sums, p[k], operand_at(values + k * 16 * 128));
}

__device__ __forceinline__ void bring_tiles(const WideArguments& a, uint32_t shared, BarrierAddress barriers,
                                            int tiles) {
  const auto barrier = [&](size_t offset, int stage) {
    return barriers + static_cast<uint32_t>(offset + stage * sizeof(Barrier));
  };
  const int column = blockIdx.y * kDim, row0 = blockIdx.x * kRows;
  const BarrierAddress queries = barrier(offsetof(WideBarriers, queries), 0);
  expect_bytes(queries, kQueryBytes);
  for (int t = 0; t < kTeams; ++t) copy_box(shared + t * kBoxBytes, &a.q, column, row0 + t * kTeamRows, queries);
  const uint32_t keys = shared + kQueryBytes, values = keys + kStages * kTileBytes;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % kStages, round = tile / kStages;
    const auto bring = [&](const CUtensorMap& map, uint32_t to, size_t full, size_t empty) {
      if (round > 0) wait_for(barrier(empty, stage), (round - 1) & 1);
      expect_bytes(barrier(full, stage), kTileBytes);
      for (int b = 0; b < kKeys / kBoxRows; ++b) {
        copy_box(to + stage * kTileBytes + b * kBoxBytes, &map, column, tile * kKeys + b * kBoxRows,
                 barrier(full, stage));
      }
    };
    bring(a.k, keys, offsetof(WideBarriers, full_keys), offsetof(WideBarriers, empty_keys));
    bring(a.v, values, offsetof(WideBarriers, full_values), offsetof(WideBarriers, empty_values));
  }
}

__device__ __forceinline__ void attend_rows(const WideArguments& a, uint32_t shared, BarrierAddress barriers,
                                            int tiles) {
  const int team = threadIdx.x / 128, lane = threadIdx.x % 32;
  const auto barrier = [&](size_t offset, int tile) {
    return barriers + static_cast<uint32_t>(offset + tile % kStages * sizeof(Barrier));
  };
  const auto wait_full = [&](size_t full, int tile) { wait_for(barrier(full, tile), tile / kStages & 1); };
  const auto release = [&](size_t empty, int tile) {
    if (lane == 0) arrive(barrier(empty, tile));
  };
  constexpr size_t kFullKeys = offsetof(WideBarriers, full_keys), kFullValues = offsetof(WideBarriers, full_values),
                   kEmptyKeys = offsetof(WideBarriers, empty_keys), kEmptyValues = offsetof(WideBarriers, empty_values);
  const uint32_t queries = shared + team * kBoxBytes, keys = shared + kQueryBytes, values = keys + kStages * kTileBytes;
  float s[64], sums[32] = {};
  uint32_t p[8][4];
  Softmax softmax;

  wait_for(barriers + static_cast<uint32_t>(offsetof(WideBarriers, queries)), 0);
  wait_full(kFullKeys, 0);
  begin_products();
  score(s, queries, keys);
  commit_products();
  wait_for_products<0>();
  settle(s);
  release(kEmptyKeys, 0);
  if (tiles == 1) {
    softmax.soften<true>(s, a.scale, a.rows);
  } else {
    softmax.soften<false>(s, a.scale, kKeys);
  }
  pack_weights(p, s);
#pragma unroll 1
  for (int tile = 1; tile < tiles; ++tile) {
    wait_full(kFullKeys, tile);
    begin_products();
    score(s, queries, keys + tile % kStages * kTileBytes);
    commit_products();
    wait_full(kFullValues, tile - 1);
    add_values(sums, p, values + (tile - 1) % kStages * kTileBytes);
    commit_products();
    wait_for_products<1>();
    settle(s);
    release(kEmptyKeys, tile);
    const int limit = a.rows - tile * kKeys;
    if (limit < kKeys) {
      softmax.soften<true>(s, a.scale, limit);
    } else {
      softmax.soften<false>(s, a.scale, limit);
    }
    wait_for_products<0>();
    settle(sums);
    release(kEmptyValues, tile - 1);
#pragma unroll
    for (int i = 0; i < 32; ++i) sums[i] *= softmax.keep[i / 2 % 2];
    pack_weights(p, s);
  }
  wait_full(kFullValues, tiles - 1);
  begin_products();
  add_values(sums, p, values + (tiles - 1) % kStages * kTileBytes);
  commit_products();
  wait_for_products<0>();
  settle(sums);

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = softmax.total[half];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    const int r = blockIdx.x * kRows + threadIdx.x / 32 * 16 + lane / 4 + half * 8;
    if (r >= a.rows) continue;
    const float scale = 1 / total;
    bf16* to = a.out + r * a.out_stride + blockIdx.y * kDim + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      const float* v = sums + j * 4 + half * 2;
      *reinterpret_cast<uint32_t*>(to + j * 8) = pack_bf16(v[0] * scale, v[1] * scale);
    }
  }
}

// grid.x: rows, grid.y: heads.
__global__ void __launch_bounds__(kThreads, 1) attend_wide_kernel(const __grid_constant__ WideArguments a) {
#ifdef VIREO_HAS_WARPGROUPS
  extern __shared__ uint4 shared_memory[];
  __shared__ WideBarriers barriers;
  const uint32_t shared = (shared_address(shared_memory) + 1023) & ~1023u, first = shared_address(&barriers);
  if (threadIdx.x == 0) {
    const auto start = [&](size_t offset, int stage, uint32_t arrivals) {
      start_barrier(first + static_cast<uint32_t>(offset + stage * sizeof(Barrier)), arrivals);
    };
    start(offsetof(WideBarriers, queries), 0, 1);
    for (int s = 0; s < kStages; ++s) {
      start(offsetof(WideBarriers, full_keys), s, 1);
      start(offsetof(WideBarriers, full_values), s, 1);
      start(offsetof(WideBarriers, empty_keys), s, kUserWarpsOfAll);
      start(offsetof(WideBarriers, empty_values), s, kUserWarpsOfAll);
    }
    publish_barriers();
  }
  __syncthreads();
  let_next_start();
  wait_for_previous();
  const int tiles = (a.rows + kKeys - 1) / kKeys;
  if (threadIdx.x / 128 == kTeams) {
    leave_registers<32>();
    if (threadIdx.x == kTeams * 128) bring_tiles(a, shared, first, tiles);
  } else {
    take_registers<160>();
    attend_rows(a, shared, first, tiles);
  }
#endif
}

}  // namespace

PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  static const auto encoder = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = {};
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
    const bool found = status == cudaSuccess && result == cudaDriverEntryPointSuccess;
    return found ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function) : nullptr;
  }();
  return encoder;
}

CUtensorMap tensor_map(Tensor t, int box_rows) {
  CUtensorMap map;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(t.cols), static_cast<cuuint64_t>(t.rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(t.stride) * 2};
  const cuuint32_t box[2] = {kBoxCols, static_cast<cuuint32_t>(box_rows)}, steps[2] = {1, 1};
  CHECK(tensor_map_encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, t.data, sizes, strides, box, steps,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  return map;
}

bool attends_wide(const Queue& queue, const AttentionShape& shape, Tensor q, Tensor k, Tensor v) {
  const auto fits = [](Tensor t) { return t.stride % 8 == 0 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0; };
  return queue.warpgroups && shape.head_dim == kDim && shape.heads == shape.kv_heads && q.rows >= kTeamRows &&
         fits(q) && fits(k) && fits(v) && tensor_map_encoder();
}

void attend_wide(const Queue& queue, Tensor q, Tensor k, Tensor v, const AttentionShape& shape, Tensor out) {
  CHECK(q.dtype == DType::kBF16 && k.rows == q.rows && v.rows == q.rows && out.stride % 2 == 0);
  static SharedMemory memory;
  memory.allow(reinterpret_cast<const void*>(attend_wide_kernel), kSharedBytes);
  const WideArguments a = {tensor_map(q, kBoxRows),
                           tensor_map(k, kBoxRows),
                           tensor_map(v, kBoxRows),
                           static_cast<int>(q.rows),
                           shape.scale * kLog2e,
                           out.row<bf16>(0),
                           out.stride};
  launch(queue, attend_wide_kernel, dim3((a.rows + kRows - 1) / kRows, shape.heads), kThreads, kSharedBytes, a);
}

}  // namespace vireo::cuda
