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
  multiply_tiles<2, kGroup>(a, tiles, padded, 0, room, ring, PlainEnds{});
#endif
}

int64_t shared_bytes(const CudaLinear& w, int rows, int stages) {
  return int64_t{staged_bytes(rows, padded_columns(w))} + parts_bytes(kGroup, rows, 1) +
         int64_t{kWeightStageBytes} * stages;
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
    const int rows = static_cast<int>(std::min<int64_t>(most, x.rows - first));
    launch(queue, gemv_bulk_kernel, grid, Ring<false>::kThreads, static_cast<size_t>(shared_bytes(w, rows, stages)),
           gemv_arguments(w, x.slice_rows(first, rows), norm, into, out.slice_rows(first, rows)), padded_columns(w),
           stages);
  }
}

}  // namespace vireo::cuda
