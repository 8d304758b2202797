// Products of few rows where the device has bulk copies (compute capability 9.0): as gemv.cu, but one warp of each block does nothing but
// send for weights, whole rows' pieces at a time, so that neither the instructions nor the queues of the loads get in the way
// of the others. What it sent for arrives on barriers, stage by stage.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/gemv_bulk.cuh"

#include <algorithm>

#include "base/check.h"

namespace vireo::cuda {
namespace {

constexpr int kMaxStages = 8;
constexpr int kGroup = 2;

__global__ void __launch_bounds__(Ring<false>::kThreads, 3) gemv_bulk_kernel(GemvArguments a, int padded, int stages) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint4 shared[];
  __shared__ RingBarriers barriers;
  char* staged = reinterpret_cast<char*>(shared);
  const ProductRoom room = {staged, reinterpret_cast<float*>(staged + staged_bytes(a.rows, padded))};
  const bool sends = threadIdx.x >= Ring<false>::kAllUsers;
  Ring<false> ring(barriers, shared_address(room.parts) + parts_bytes(kGroup, a.rows, 1), kWeightStageBytes, stages);
  if (threadIdx.x == 0) ring.start();
  __syncthreads();
  let_next_start();
  const Tiles tiles = {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), tiles_of(a.out)};
  if (sends) return send_weights(a.w, static_cast<int>(a.stride), a.out, tiles, ring);
  multiply_tiles<PlainWeights<2, kGemvRows>, kGroup>(a, static_cast<int>(a.stride), tiles, padded, 0, room, ring,
                                                     PlainEnds{});
#endif
}

// The same for a matrix in a tier, and up to kRows rows.
template <int kRows>
__global__ void __launch_bounds__(Ring<false>::kThreads, 2)
    coded_gemv_bulk_kernel(GemvArguments a, TierMatrix w, int stages) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint4 shared[];
  __shared__ RingBarriers barriers;
  char* staged = reinterpret_cast<char*>(shared);
  const int padded = w.chunks * kChunkIn;
  const ProductRoom room = {staged, reinterpret_cast<float*>(staged + coded_staged_bytes(a.rows, w.chunks))};
  Ring<false> ring(barriers, shared_address(room.parts) + parts_bytes(kGroup, a.rows, 1),
                   kStageChunks * chunk_bytes_of(w.tier), stages);
  if (threadIdx.x == 0) ring.start();
  __syncthreads();
  let_next_start();
  const Tiles tiles = {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), tiles_of(a.out, kChunkOuts)};
  if (threadIdx.x >= Ring<false>::kAllUsers) return send_chunks(w, tiles, ring);
  multiply_tiles<CodedWeights<kRows>, kGroup * kTileOuts / kChunkOuts>(a, w, tiles, padded, 0, room, ring, PlainEnds{});
#endif
}

// Rows at once and stages, such that all has room in a block.
struct Cut {
  int rows = kGemvRows, stages;
};
template <typename Bytes>
Cut fit(const Queue& queue, int stages, Bytes bytes) {
  Cut c{.stages = stages};
  while (c.rows > 1 && bytes(c) > queue.block_shared_bytes) --c.rows;
  while (c.stages > 1 && bytes(c) > queue.block_shared_bytes) --c.stages;
  CHECK(bytes(c) <= queue.block_shared_bytes);
  return c;
}

// Launches for as many rows at a time as have room.
template <typename Bytes, typename Launch>
void launch_rows(const Queue& queue, int stages, Tensor x, Bytes bytes, Launch launch_some) {
  const Cut most = fit(queue, stages, bytes);
  for (int64_t first = 0; first < x.rows; first += most.rows) {
    const Cut c{static_cast<int>(std::min<int64_t>(most.rows, x.rows - first)), most.stages};
    launch_some(first, c, static_cast<size_t>(bytes(c)));
  }
}

int grid_of(const Queue& queue, const CudaLinear& w, const GemvShape& shape, int tile_outs) {
  const int tiles = static_cast<int>((w.out + tile_outs - 1) / tile_outs);
  return std::min(tiles, queue.multiprocessors * shape.blocks_per_processor);
}

}  // namespace

void gemv_bulk(const Queue& queue, const CudaLinear& w, Tensor x, const Norm* norm, Into into, Tensor out,
               GemvShape shape) {
  static SharedMemory memory;
  memory.allow(reinterpret_cast<const void*>(gemv_bulk_kernel), queue.block_shared_bytes);
  const auto bytes = [&](const Cut& c) {
    return staged_bytes(c.rows, padded_columns(w)) + parts_bytes(kGroup, c.rows, 1) + kStageAlignment +
           kWeightStageBytes * c.stages;
  };
  launch_rows(queue, std::min(shape.depth, kMaxStages), x, bytes, [&](int64_t first, const Cut& c, size_t shared) {
    launch(queue, gemv_bulk_kernel, grid_of(queue, w, shape, kTileOuts), Ring<false>::kThreads, shared,
           gemv_arguments(w, x.slice_rows(first, c.rows), norm, into, out.slice_rows(first, c.rows)), padded_columns(w),
           c.stages);
  });
}

void coded_gemv_bulk(const Queue& queue, const CudaLinear& w, Tensor x, const Norm* norm, Into into, Tensor out,
                     GemvShape shape) {
  static SharedMemory memory;
  memory.allow(reinterpret_cast<const void*>(coded_gemv_bulk_kernel<1>), queue.block_shared_bytes);
  static SharedMemory memory_of_rows;
  memory_of_rows.allow(reinterpret_cast<const void*>(coded_gemv_bulk_kernel<kGemvRows>), queue.block_shared_bytes);
  const int stage = tier_stage_bytes(w.coded.tier);
  const auto bytes = [&](const Cut& c) {
    return coded_staged_bytes(c.rows, w.coded.chunks) + parts_bytes(kGroup, c.rows, 1) + kStageAlignment +
           stage * c.stages;
  };
  // As many bytes as of BF16.
  const int stages = std::min((shape.depth * kWeightStageBytes + stage - 1) / stage, kMostStages);
  launch_rows(queue, stages, x, bytes, [&](int64_t first, const Cut& c, size_t shared) {
    const auto kernel = c.rows == 1 ? coded_gemv_bulk_kernel<1> : coded_gemv_bulk_kernel<kGemvRows>;
    launch(queue, kernel, grid_of(queue, w, shape, kChunkOuts), Ring<false>::kThreads, shared,
           gemv_arguments(w, x.slice_rows(first, c.rows), norm, into, out.slice_rows(first, c.rows)), w.coded,
           c.stages);
  });
}

}  // namespace vireo::cuda
