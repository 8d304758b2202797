// Products of many rows with a matrix on the tensor cores: tiles of 128 x 128 over steps of 64, three stages of asynchronous copies, eight
// warps of 64 x 32. Right for every shape; rows of 64 elements are swizzled by 16-byte chunk so that ldmatrix meets no bank
// twice.
// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "cuda/kernels.h"
#include "cuda/tensor_core.cuh"

namespace vireo::cuda {
namespace {

constexpr int kTileRows = 128, kTileOuts = 128, kTileDepth = 64, kStages = 3, kThreads = 256;
constexpr int kRowBytes = kTileDepth * 2;
constexpr int kStageBytes = (kTileRows + kTileOuts) * kRowBytes;

struct GemmArguments {
  const bf16* x;
  int64_t x_stride;
  int rows;
  bool x_aligned;  // every row of x starts at 16 bytes and holds whole chunks
  const bf16* w;
  int64_t w_stride;
  int out;
  int in;
  const float* bias;
  void* y;
  int64_t y_stride;
  bool y_float;
  bool pairs;
  Into into;
};

__device__ __forceinline__ uint32_t chunk_at(uint32_t base, int row, int chunk) {
  return base + row * kRowBytes + ((chunk ^ (row & 7)) << 4);
}

// One stage: rows of x, then rows of w, zeros outside the matrices.
__device__ __forceinline__ void fetch(const GemmArguments& a, uint32_t stage, int row0, int out0, int k0) {
#pragma unroll
  for (int i = 0; i < kTileRows * 8 / kThreads; ++i) {
    const int at = i * kThreads + threadIdx.x, row = at / 8, chunk = at % 8;
    const int k = k0 + chunk * 8;
    const bf16* from = a.x + static_cast<int64_t>(row0 + row) * a.x_stride + k;
    const bool inside = row0 + row < a.rows && k < a.in;
    if (a.x_aligned) {
      copy_async(chunk_at(stage, row, chunk), inside ? from : a.x, inside);
      continue;
    }
    uint32_t v[4];
    for (int j = 0; j < 4; ++j) {
      const uint32_t low = inside && k + 2 * j < a.in ? from[2 * j].bits : 0;
      const uint32_t high = inside && k + 2 * j + 1 < a.in ? from[2 * j + 1].bits : 0;
      v[j] = low | high << 16;
    }
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(chunk_at(stage, row, chunk)), "r"(v[0]), "r"(v[1]),
                 "r"(v[2]), "r"(v[3])
                 : "memory");
  }
#pragma unroll
  for (int i = 0; i < kTileOuts * 8 / kThreads; ++i) {
    const int at = i * kThreads + threadIdx.x, row = at / 8, chunk = at % 8;
    const int k = k0 + chunk * 8;
    const bool inside = out0 + row < a.out && k < a.w_stride;
    const bf16* from = a.w + static_cast<int64_t>(out0 + row) * a.w_stride + k;
    copy_async(chunk_at(stage + kTileRows * kRowBytes, row, chunk), inside ? from : a.w, inside);
  }
}

__device__ __forceinline__ void put(const GemmArguments& a, int r, int o, float v) {
  const int64_t at = static_cast<int64_t>(r) * a.y_stride + o;
  if (a.y_float) {
    static_cast<float*>(a.y)[at] = v;
  } else {
    store_float(static_cast<bf16*>(a.y) + at, v);
  }
}

// Columns `col` and `col + 1` of row r of the product; col is even.
__device__ __forceinline__ void finish(const GemmArguments& a, int r, int col, float v0, float v1) {
  if (r >= a.rows || col >= a.out) return;
  const int half = a.out / 2;
  const int o0 = a.pairs ? col / 2 : col, o1 = a.pairs ? col / 2 + half : col + 1;
  const bool both = col + 1 < a.out;
  if (a.bias) {
    v0 += a.bias[o0];
    if (both) v1 += a.bias[o1];
  }
  switch (a.into) {
    case Into::kSiluPairs:
      return put(a, r, col / 2, silu(v0) * v1);
    case Into::kGeluTanh:
      v0 = gelu_tanh(v0), v1 = gelu_tanh(v1);
      break;
    case Into::kGeluErf:
      v0 = gelu_erf(v0), v1 = gelu_erf(v1);
      break;
    case Into::kAdd: {
      float* y = static_cast<float*>(a.y) + static_cast<int64_t>(r) * a.y_stride;
      y[o0] += v0;
      if (both) y[o1] += v1;
      return;
    }
    case Into::kStore:
      break;
  }
  if (!a.pairs && both && a.y_stride % 2 == 0 && !a.y_float) {
    const int64_t at = static_cast<int64_t>(r) * a.y_stride + col;
    bf16* to = static_cast<bf16*>(a.y) + at;
    if (reinterpret_cast<uintptr_t>(to) % 4 == 0) {
      *reinterpret_cast<uint32_t*>(to) = pack_bf16(v0, v1);
      return;
    }
  }
  put(a, r, o0, v0);
  if (both) put(a, r, o1, v1);
}

__global__ void __launch_bounds__(kThreads) gemm_kernel(GemmArguments a) {
  extern __shared__ uint4 shared[];
  const uint32_t base = shared_address(shared);
  const int row0 = blockIdx.x * kTileRows, out0 = blockIdx.y * kTileOuts;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = (warp / 4) * 64, warp_out = (warp % 4) * 32;
  const int steps = (a.in + kTileDepth - 1) / kTileDepth;

  let_next_start();
  wait_for_previous();
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < steps) fetch(a, base + s * kStageBytes, row0, out0, s * kTileDepth);
    commit_copies();
  }
  float sums[4][4][4] = {};
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    const int ahead = step + kStages - 1;
    if (ahead < steps) fetch(a, base + ahead % kStages * kStageBytes, row0, out0, ahead * kTileDepth);
    commit_copies();
    const uint32_t xs = base + step % kStages * kStageBytes, ws = xs + kTileRows * kRowBytes;
#pragma unroll
    for (int k = 0; k < kTileDepth / 16; ++k) {
      uint32_t x[4][4], w[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) load_matrices(x[i], chunk_at(xs, warp_row + i * 16 + lane % 16, k * 2 + lane / 16));
        // Matrices: outputs 0..7 and 8..15 of the first half of k, then of the second.
#pragma unroll
      for (int j = 0; j < 2; ++j) load_matrices(w[j], chunk_at(ws, warp_out + j * 16 + lane % 16, k * 2 + lane / 16));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) multiply_add(sums[i][j], x[i], w[j / 2][j % 2], w[j / 2][j % 2 + 2]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = row0 + warp_row + i * 16 + lane / 4, col = out0 + warp_out + j * 8 + lane % 4 * 2;
      finish(a, r, col, sums[i][j][0], sums[i][j][1]);
      finish(a, r + 8, col, sums[i][j][2], sums[i][j][3]);
    }
  }
}

}  // namespace

void gemm(const Queue& queue, const CudaLinear& w, Tensor x, Into into, Tensor out) {
  CHECK(x.dtype == DType::kBF16);
  GemmArguments a = {};
  a.x = x.row<bf16>(0);
  a.x_stride = x.stride;
  a.rows = static_cast<int>(x.rows);
  a.x_aligned = x.stride % 8 == 0 && w.in % 8 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
  a.w = w.weights;
  a.w_stride = w.stride;
  a.out = static_cast<int>(w.out);
  a.in = static_cast<int>(w.in);
  a.bias = w.bias;
  a.y = out.data;
  a.y_stride = out.stride;
  a.y_float = out.dtype == DType::kF32;
  a.pairs = w.order == CudaLinear::Order::kPairs;
  a.into = into;
  static SharedMemory memory;
  memory.allow(reinterpret_cast<const void*>(gemm_kernel), kStages * kStageBytes);
  const dim3 grid((a.rows + kTileRows - 1) / kTileRows, (a.out + kTileOuts - 1) / kTileOuts);
  launch(queue, gemm_kernel, grid, kThreads, kStages * kStageBytes, a);
}

}  // namespace vireo::cuda
