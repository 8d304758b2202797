// Products of few rows where the device has bulk copies (compute capability 9.0): as gemv.cu, but one warp of each block does nothing but
// send for weights, whole rows' pieces at a time, so that neither the instructions nor the queues of the loads get in the way
// of the others. What it sent for arrives on barriers, stage by stage.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "cuda/gemv.cuh"
#include "cuda/sm90/bulk_copy.cuh"

namespace vireo::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;  // that multiply; one more copies
constexpr int kStageSteps = 16;                    // of 64 inputs: two per warp
constexpr int kStageIn = kStageSteps * kStep;
constexpr int kPitch =
    kStageIn * 2 + 64;  // bytes from a row of a stage to the next: reads of two rows meet no bank twice
constexpr int kStageBytes = kTileOuts * kPitch;
constexpr int kMaxStages = 8;

// The threads that multiply wait for each other.
__device__ __forceinline__ void meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(kWarps * 32) : "memory");
}

[[maybe_unused]] __device__ __forceinline__ float sum_of_threads(float v) {
  __shared__ float sums[kWarps];
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v;
  meet();
  float total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += sums[w];
  meet();
  return total;
}

// Sends for the weights of all tiles of the block, stage after stage.
[[maybe_unused]] __device__ void copy_weights(const GemvArguments& a, int tiles, int stages, uint32_t ring,
                                              Barrier* full, Barrier* empty) {
  const int lane = threadIdx.x % 32;
  int stage = 0;
  uint32_t phase = 1;  // a stage that was never used is empty
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int rows = min(kTileOuts, a.out - tile * kTileOuts);
    const char* from =
        reinterpret_cast<const char*>(a.w + (int64_t{tile} * kTileOuts + min(lane, rows - 1)) * a.stride);
    for (int in = 0; in < a.stride; in += kStageIn) {
      const uint32_t bytes = min(kStageIn, static_cast<int>(a.stride) - in) * 2;
      wait_for(empty[stage], phase);
      if (lane == 0) expect_bytes(full[stage], bytes * rows);
      __syncwarp();
      if (lane < rows) copy_bulk(ring + stage * kStageBytes + lane * kPitch, from + in * 2, bytes, full[stage]);
      if (++stage == stages) {
        stage = 0;
        phase ^= 1;
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads + 32, 4) gemv_bulk_kernel(GemvArguments a, int padded, int stages) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint4 shared[];
  __shared__ Barrier full[kMaxStages], empty[kMaxStages];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int tiles = (a.out + kTileOuts - 1) / kTileOuts;
  char* staged = reinterpret_cast<char*>(shared);
  float* parts = reinterpret_cast<float*>(staged + a.rows * staged_stride(padded));  // of the warps, for two tiles
  const int part = kTileOuts * a.rows;
  const uint32_t ring = shared_address(parts + 2 * kWarps * part);
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      start_barrier(full[s], 1);
      start_barrier(empty[s], kThreads);
    }
    publish_barriers();
  }
  __syncthreads();
  let_next_start();
  if (warp == kWarps) return copy_weights(a, tiles, stages, ring, full, empty);

  const auto norm = first_weights<32 / kWarps>(a, kThreads);
  const GemvArguments b = in_registers(a);
  // Thread i < 8 * rows finishes output i % 8 of row i / 8.
  const int my_row = threadIdx.x / kTileOuts, my_out = threadIdx.x % kTileOuts;
  const bool mine = my_row < a.rows, adds = mine && b.into == Into::kAdd;
  const auto old_of = [&](int tile) {
    const int out = tile * kTileOuts + my_out;
    return out < a.out ? static_cast<const float*>(b.y)[my_row * b.y_stride + out] : 0.0f;
  };
  wait_for_previous();
  float old = adds ? old_of(blockIdx.x) : 0.0f;
  stage_rows(b, norm, padded, kThreads, sum_of_threads, staged);
  meet();

  const bool has_row = lane / 4 < a.rows;
  const uint32_t my_w = ring + lane / 4 * kPitch + lane % 4 * 16 + warp * 2 * kStep * 2;
  const uint32_t my_x =
      shared_address(staged) + lane / 4 * staged_stride(padded) + lane % 4 * 16 + warp * 2 * kStep * 2;
  int stage = 0, turn = 0;
  uint32_t phase = 0;
#pragma unroll 1
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, turn ^= 1) {
    const float here = old;
    if (adds && tile + gridDim.x < tiles) old = old_of(tile + gridDim.x);
    float even[4] = {}, odd[4] = {};
#pragma unroll 1
    for (int in = 0; in < padded; in += kStageIn) {
      wait_for(full[stage], phase);
      const uint32_t at = my_w + stage * kStageBytes, from = my_x + in * 2;
#pragma unroll 2
      for (int i = 0; i < 2; ++i) {
        const int first = in + (warp * 2 + i) * kStep;
        if (first >= padded) break;
        uint4 w0 = load_shared(at + i * 128), w1 = load_shared(at + i * 128 + 64);
        uint4 x0 = {0, 0, 0, 0}, x1 = {0, 0, 0, 0};
        if (has_row) {
          x0 = load_shared(from + i * 128);
          x1 = load_shared(from + i * 128 + 64);
        }
        // What lies behind the end of a row was not copied.
        if (first + kStep > a.stride) {
          if (first + lane % 4 * 8 >= a.stride) w0 = {0, 0, 0, 0};
          if (first + 32 + lane % 4 * 8 >= a.stride) w1 = {0, 0, 0, 0};
        }
        multiply_step(even, odd, w0, w1, x0, x1);
      }
      arrive(empty[stage]);
      if (++stage == stages) {
        stage = 0;
        phase ^= 1;
      }
    }
    if (has_row) {
      float* to = parts + (turn * kWarps + warp) * part + lane / 4 * kTileOuts + lane % 4 * 2;
      *reinterpret_cast<float2*>(to) = {even[0] + odd[0], even[1] + odd[1]};
    }
    meet();
    if (threadIdx.x < kTileOuts * kGemvRows) {
      float v = 0;
      const float* of = parts + turn * kWarps * part + min(static_cast<int>(threadIdx.x), part - 1);
#pragma unroll
      for (int w = 0; w < kWarps; ++w) v += of[w * part];
      const float up = __shfl_down_sync(kAllLanes, v, 1);
      const int out = tile * kTileOuts + my_out;
      if (mine && out < a.out) finish(b, my_row, out, v, up, here);
    }
  }
#endif
}

int64_t shared_bytes(const CudaLinear& w, int64_t rows, int stages) {
  const int64_t parts = 2 * kWarps * kTileOuts * rows * int64_t{sizeof(float)};
  return rows * staged_stride(padded_columns(w)) + parts + int64_t{kStageBytes} * stages;
}

}  // namespace

void gemv_bulk(const Queue& queue, const CudaLinear& w, Tensor x, const Norm* norm, Into into, Tensor out,
               GemvShape shape) {
  int stages = std::min(shape.depth, kMaxStages), most = kGemvRows;
  while (most > 1 && shared_bytes(w, most, stages) > queue.block_shared_bytes) --most;
  while (stages > 1 && shared_bytes(w, most, stages) > queue.block_shared_bytes) --stages;
  CHECK(shared_bytes(w, most, stages) <= queue.block_shared_bytes);
  static SharedMemory memory;
  memory.allow(reinterpret_cast<const void*>(gemv_bulk_kernel), queue.block_shared_bytes);
  const int tiles = static_cast<int>((w.out + kTileOuts - 1) / kTileOuts);
  const int grid = std::min(tiles, queue.multiprocessors * shape.blocks_per_processor);
  for (int64_t first = 0; first < x.rows; first += most) {
    const int64_t rows = std::min<int64_t>(most, x.rows - first);
    launch(queue, gemv_bulk_kernel, grid, kThreads + 32, static_cast<size_t>(shared_bytes(w, rows, stages)),
           gemv_arguments(w, x.slice_rows(first, rows), norm, into, out.slice_rows(first, rows)), padded_columns(w),
           stages);
  }
}

}  // namespace vireo::cuda
