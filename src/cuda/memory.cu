// Device memory rearranged at load, and read as fast as it goes for measuring.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/device.cuh"
#include "cuda/kernels.h"

namespace vireo::cuda {
namespace {

constexpr int kTile = 32;

__global__ void transpose_kernel(const bf16* from, int64_t from_stride, int64_t rows, int64_t cols, bf16* to,
                                 int64_t to_stride) {
  __shared__ bf16 tile[kTile][kTile + 2];
  wait_for_previous();
  const int64_t c0 = int64_t{blockIdx.x} * kTile, r0 = int64_t{blockIdx.y} * kTile;
  for (int i = threadIdx.y; i < kTile; i += blockDim.y) {
    if (r0 + i < rows && c0 + threadIdx.x < cols)
      tile[i][threadIdx.x] = from[(r0 + i) * from_stride + c0 + threadIdx.x];
  }
  __syncthreads();
  for (int i = threadIdx.y; i < kTile; i += blockDim.y) {
    if (c0 + i < cols && r0 + threadIdx.x < rows) to[(c0 + i) * to_stride + r0 + threadIdx.x] = tile[threadIdx.x][i];
  }
}

__global__ void __launch_bounds__(512) read_kernel(const uint4* data, int64_t count, uint32_t* sums) {
  constexpr int kLoads = 8;
  wait_for_previous();
  const int64_t threads = int64_t{gridDim.x} * blockDim.x, me = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  uint32_t sum = 0;
  for (int64_t i = me; i < count; i += threads * kLoads) {
    uint4 v[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j)
      v[j] = i + j * threads < count ? load_stream(data + i + j * threads) : uint4{0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < kLoads; ++j) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (sum == 0x12345678u) sums[0] = sum;  // never for zeros; keeps the loads
}

}  // namespace

int kernels_version() {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(read_kernel));
  if (error == cudaSuccess) return attributes.ptxVersion;
  cudaGetLastError();
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) return 0;
  CUDA_CHECK(error);
  return 0;
}

void transpose(const Queue& queue, const bf16* from, int64_t from_stride, int64_t rows, int64_t cols, bf16* to,
               int64_t to_stride) {
  const dim3 grid(static_cast<unsigned>((cols + kTile - 1) / kTile), static_cast<unsigned>((rows + kTile - 1) / kTile));
  launch(queue, transpose_kernel, grid, dim3(kTile, 8), 0, from, from_stride, rows, cols, to, to_stride);
}

void read_all(const Queue& queue, const void* data, int64_t bytes, uint32_t* sums) {
  launch(queue, read_kernel, queue.multiprocessors * 4, 512, 0, static_cast<const uint4*>(data), bytes / 16, sums);
}

}  // namespace vireo::cuda
