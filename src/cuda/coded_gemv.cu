// Products of few rows with a matrix in a tier, on any device: as gemv.cu, each warp multiplies every so many chunks of a block's tiles
// and copies its next ones into a ring of its own.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "cuda/gemv.cuh"
#include "cuda/tier_codes.cuh"

namespace vireo::cuda {
namespace {

constexpr int kDepth = 4;  // chunks in flight per warp

template <Tier kTier, int kRows>
__global__ void __launch_bounds__(256, 2) coded_gemv_kernel(GemvArguments a, TierMatrix w) {
  constexpr int kBytes = kChunkBytes<kTier>;
  extern __shared__ uint4 shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int tiles = (a.out + kChunkOuts - 1) / kChunkOuts, padded = w.chunks * kChunkIn, part = kChunkOuts * a.rows;
  char* staged = reinterpret_cast<char*>(shared);
  float* parts = reinterpret_cast<float*>(staged + a.rows * staged_stride(padded));  // of the warps, for two tiles
  const uint32_t ring = shared_address(parts + 2 * warps * part) + warp * kDepth * kBytes;

  int tile_ahead = warp < w.chunks ? blockIdx.x : tiles, chunk_ahead = warp;
  uint32_t slot = ring;
  const auto fetch = [&] {
    if (tile_ahead < tiles) {
      copy_chunk<kTier>(slot, w.data + (int64_t{tile_ahead} * w.chunks + chunk_ahead) * kBytes, lane);
      chunk_ahead += warps;
      if (chunk_ahead >= w.chunks) {
        chunk_ahead = warp;
        tile_ahead += gridDim.x;
      }
    }
    commit_copies();
    slot = slot == ring + (kDepth - 1) * kBytes ? ring : slot + kBytes;
  };
#pragma unroll 1
  for (int i = 0; i < kDepth; ++i) fetch();
  const auto norm = first_weights<4>(a, Crew<1>{static_cast<int>(blockDim.x)});
  const GemvArguments b = in_registers(a);

  let_next_start();
  wait_for_previous();
  // Between the rows there is room.
  if (threadIdx.x < kZeroBytes / 16) reinterpret_cast<uint4*>(staged + padded * 2)[threadIdx.x] = uint4{0, 0, 0, 0};
  stage_rows<Staging::kCoded>(
      b, norm, padded, blockDim.x, [](float v, float w) { return block_sum(v + w); }, staged);
  __syncthreads();

  const uint32_t x = shared_address(staged);
  int turn = 0;
#pragma unroll 1
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, turn ^= 1) {
    CodedSums<kRows> sums;
#pragma unroll 1
    for (int chunk = warp; chunk < w.chunks; chunk += warps) {
      wait_for_copies<kDepth - 1>();
      // Scales are read by lanes that did not copy them.
      __syncwarp();
      multiply_chunk<kTier>(slot, CodedInputs{x + chunk * kChunkIn * 2, x + padded * 2, staged_stride(padded), a.rows},
                            sums);
      __syncwarp();
      fetch();
    }
    float* to = parts + (turn * warps + warp) * part + lane % 2 * (kChunkOuts / 2) + lane / 4;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (kRows > 1 && r >= a.rows) break;
      const float v = sum_of_quad(sums.of[r], threadIdx.x % 32) * Decoder<kTier>::kUnit;
      if (lane % 4 < 2) to[r * kChunkOuts] = v;
    }
    __syncthreads();
    // Result i is output i % 16 of row i / 16.
#pragma unroll 1
    for (int i = threadIdx.x; i < (part + 31) / 32 * 32; i += blockDim.x) {
      float v = 0;
      const float* of = parts + turn * warps * part + min(i, part - 1);
#pragma unroll 4
      for (int k = 0; k < warps; ++k) v += of[k * part];
      const float up = __shfl_down_sync(kAllLanes, v, 1);
      const int row = i / kChunkOuts, out = tile * kChunkOuts + i % kChunkOuts;
      if (row >= a.rows || out >= a.out) continue;
      const bool adds = a.into == Into::kAdd;
      finish(b, row, out, v, up, adds ? static_cast<const float*>(b.y)[row * b.y_stride + out] : 0.0f);
    }
  }
}

// Shared memory of a block: the rows of x, the parts, the rings.
int64_t shared_bytes(const TierMatrix& w, int64_t rows, int warps) {
  const int64_t parts = 2 * warps * kChunkOuts * rows * int64_t{sizeof(float)};
  return rows * staged_stride(w.chunks * kChunkIn) + parts + int64_t{chunk_bytes(w.tier)} * warps * kDepth;
}

template <Tier kTier, int kRows>
void run(const Queue& queue, const GemvArguments& a, const TierMatrix& w, GemvShape shape) {
  static SharedMemory memory;
  const auto kernel = coded_gemv_kernel<kTier, kRows>;
  memory.allow(reinterpret_cast<const void*>(kernel), queue.block_shared_bytes);
  const int grid = std::min((a.out + kChunkOuts - 1) / kChunkOuts, queue.multiprocessors * shape.blocks_per_processor);
  launch(queue, kernel, grid, shape.warps * 32, static_cast<size_t>(shared_bytes(w, a.rows, shape.warps)), a, w);
}

template <Tier kTier>
void run(const Queue& queue, const GemvArguments& a, const TierMatrix& w, GemvShape shape) {
  a.rows == 1 ? run<kTier, 1>(queue, a, w, shape) : run<kTier, kGemvRows>(queue, a, w, shape);
}

}  // namespace

int64_t most_coded_inputs(const Queue& queue) {
  constexpr int64_t kBesideTheRow = 40 << 10;  // of coded_experts.cu, which takes most
  return (queue.block_shared_bytes - kBesideTheRow) / 2 / kChunkIn * kChunkIn;
}

void coded_gemv_copies(const Queue& queue, const CudaLinear& linear, Tensor x, const Norm* norm, Into into, Tensor out,
                       GemvShape shape) {
  const TierMatrix& w = linear.coded;
  shape.warps = std::min(shape.warps, 8);
  int most = kGemvRows;
  while (most > 1 && shared_bytes(w, most, shape.warps) > queue.block_shared_bytes) --most;
  while (shape.warps > 2 && shared_bytes(w, most, shape.warps) > queue.block_shared_bytes) shape.warps /= 2;
  CHECK(shared_bytes(w, most, shape.warps) <= queue.block_shared_bytes);
  for (int64_t first = 0; first < x.rows; first += most) {
    const int64_t rows = std::min<int64_t>(most, x.rows - first);
    const GemvArguments a = gemv_arguments(linear, x.slice_rows(first, rows), norm, into, out.slice_rows(first, rows));
    with_tier(w.tier, [&](auto tier) { run<tier()>(queue, a, w, shape); });
  }
}

}  // namespace vireo::cuda
