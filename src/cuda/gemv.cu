// Products of few rows with a matrix: bound by the bytes of the weights. A block owns 8 outputs at a time and its warps split the inputs; the
// weights are the narrow operand of a tensor core product, whose other operand has room for 8 rows, so up to 8 rows cost what
// one does and each row has the same bits whatever their number. Every lane keeps copies of 16 bytes in flight to a ring of its
// own in shared memory, across the ends of tiles, the first of them issued before the kernel ahead has ended; it alone reads
// what it copied, so nothing waits for other lanes. Rows of x wait in shared memory as bf16.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "cuda/gemv.cuh"

namespace vireo::cuda {
namespace {

// kExact: whole tiles and whole steps, as every published shape has them.
constexpr int kStepBytes = 1024;  // of a step of 8 outputs

template <int kDepth, bool kExact>
__global__ void __launch_bounds__(512, 2) gemv_kernel(GemvArguments a, int padded) {
  extern __shared__ uint4 shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int tiles = (a.out + kTileOuts - 1) / kTileOuts, steps = padded / kStep;
  char* staged = reinterpret_cast<char*>(shared);
  float* parts = reinterpret_cast<float*>(staged + a.rows * staged_stride(padded));  // of the warps, for two tiles
  const int part = kTileOuts * a.rows;

  // Copies: this warp takes every `warps`-th step of each tile of the block.
  const int my_steps = (steps - warp + warps - 1) / warps;
  const uint32_t ring = shared_address(parts + 2 * warps * part) + warp * kDepth * kStepBytes + lane * 16;
  uint32_t slot = ring;
  int tile_ahead = my_steps > 0 ? blockIdx.x : tiles, left = my_steps, chunk = warp * 8 + lane % 4;
  const char* from = reinterpret_cast<const char*>(
                         a.w + min(static_cast<int>(blockIdx.x) * kTileOuts + lane / 4, a.out - 1) * a.stride) +
                     chunk * 16;
  const int skip = warps * kStep * 2;
  const int64_t to_next_tile = int64_t{kTileOuts} * gridDim.x * a.stride * 2 - int64_t{my_steps} * skip;
  const auto fetch = [&] {
    if (tile_ahead < tiles) {
      const bool row = kExact || tile_ahead * kTileOuts + lane / 4 < a.out;
      const bool first = kExact || (row && chunk * 8 < a.stride), second = kExact || (row && chunk * 8 + 32 < a.stride);
      copy_async(slot, first ? from : reinterpret_cast<const char*>(a.w), first);
      copy_async(slot + 512, second ? from + 64 : reinterpret_cast<const char*>(a.w), second);
      from += skip;
      chunk += warps * 8;
      if (--left == 0) {
        left = my_steps;
        from += to_next_tile;
        chunk = warp * 8 + lane % 4;
        tile_ahead += gridDim.x;
      }
    }
    commit_copies();
    slot = slot == ring + (kDepth - 1) * kStepBytes ? ring : slot + kStepBytes;
  };
#pragma unroll
  for (int i = 0; i < kDepth; ++i) fetch();
  const auto norm = first_weights<4>(a, Crew<1>{static_cast<int>(blockDim.x)});
  // Thread i < 8 * rows finishes output i % 8 of row i / 8.
  const int my_row = threadIdx.x / kTileOuts, my_out = threadIdx.x % kTileOuts;
  const bool adds = a.into == Into::kAdd && my_row < a.rows;
  const auto old_of = [&](int tile) {
    const int out = tile * kTileOuts + my_out;
    return kExact || out < a.out ? static_cast<const float*>(a.y)[my_row * a.y_stride + out] : 0.0f;
  };

  const GemvArguments b = in_registers(a);

  let_next_start();
  wait_for_previous();
  float old = adds ? old_of(blockIdx.x) : 0.0f;
  stage_rows<Staging::kInOrder>(
      b, norm, padded, blockDim.x, [](float v, float w) { return block_sum(v + w); }, staged);
  __syncthreads();

  const bool has_row = lane / 4 < a.rows;
  const uint32_t first_x = shared_address(staged) + lane / 4 * staged_stride(padded) + lane % 4 * 16 + warp * kStep * 2;
  int turn = 0;
#pragma unroll 1
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, turn ^= 1) {
    const int out = tile * kTileOuts + my_out;
    const float here = old;
    if (adds && tile + gridDim.x < tiles) old = old_of(tile + gridDim.x);
    float sums[4] = {}, more[4] = {};
    uint32_t x = first_x;
#pragma unroll 2
    for (int i = 0; i < my_steps; ++i) {
      wait_for_copies<kDepth - 1>();
      const uint4 w0 = load_shared(slot), w1 = load_shared(slot + 512);
      uint4 x0 = {0, 0, 0, 0}, x1 = {0, 0, 0, 0};
      if (has_row) {
        x0 = load_shared(x);
        x1 = load_shared(x + 64);
      }
      fetch();
      x += skip;
      multiply_step(sums, more, w0, w1, x0, x1);
    }
    if (has_row) {
      float* to = parts + (turn * warps + warp) * part + lane / 4 * kTileOuts + lane % 4 * 2;
      *reinterpret_cast<float2*>(to) = {sums[0] + more[0], sums[1] + more[1]};
    }
    __syncthreads();
    if (threadIdx.x < kTileOuts * kGemvRows) {
      float v = 0;
      const float* of = parts + turn * warps * part + min(static_cast<int>(threadIdx.x), part - 1);
#pragma unroll 4
      for (int w = 0; w < warps; ++w) v += of[w * part];
      const float up = __shfl_down_sync(kAllLanes, v, 1);
      if (my_row < a.rows && (kExact || out < a.out)) finish(b, my_row, out, v, up, here);
    }
  }
}

// Shared memory of a block: the rows of x, the parts, the rings.
int64_t shared_bytes(const CudaLinear& w, int64_t rows, const GemvShape& shape) {
  const int64_t parts = 2 * shape.warps * kTileOuts * rows * int64_t{sizeof(float)};
  return rows * staged_stride(padded_columns(w)) + parts + int64_t{kStepBytes} * shape.warps * shape.depth;
}

template <int kDepth, bool kExact>
void run(const Queue& queue, const CudaLinear& w, const GemvArguments& a, const GemvShape& shape) {
  const auto kernel = gemv_kernel<kDepth, kExact>;
  static SharedMemory memory;
  memory.allow(reinterpret_cast<const void*>(kernel), queue.block_shared_bytes);
  const int tiles = (a.out + kTileOuts - 1) / kTileOuts;
  const int grid = std::min(tiles, queue.multiprocessors * shape.blocks_per_processor);
  launch(queue, kernel, grid, shape.warps * 32, static_cast<size_t>(shared_bytes(w, a.rows, shape)), a,
         padded_columns(w));
}

template <int kDepth>
void run(const Queue& queue, const CudaLinear& w, const GemvArguments& a, const GemvShape& shape) {
  if (a.out % kTileOuts == 0 && a.stride % kStep == 0) return run<kDepth, true>(queue, w, a, shape);
  run<kDepth, false>(queue, w, a, shape);
}

// The most rows whose x fits in shared memory beside the rings; the warps become fewer where not even one does.
int fit(const Queue& queue, const CudaLinear& w, GemvShape& shape) {
  int rows = kGemvRows;
  while (rows > 1 && shared_bytes(w, rows, shape) > queue.block_shared_bytes) --rows;
  while (shape.warps > 2 && shared_bytes(w, rows, shape) > queue.block_shared_bytes) shape.warps /= 2;
  CHECK(shared_bytes(w, rows, shape) <= queue.block_shared_bytes);
  return rows;
}

}  // namespace

void gemv_copies(const Queue& queue, const CudaLinear& w, Tensor x, const Norm* norm, Into into, Tensor out,
                 GemvShape shape) {
  const int most = fit(queue, w, shape);
  for (int64_t first = 0; first < x.rows; first += most) {
    const int64_t rows = std::min<int64_t>(most, x.rows - first);
    const GemvArguments a = gemv_arguments(w, x.slice_rows(first, rows), norm, into, out.slice_rows(first, rows));
    if (shape.depth == 4) {
      run<4>(queue, w, a, shape);
    } else {
      run<8>(queue, w, a, shape);
    }
  }
}

}  // namespace vireo::cuda
