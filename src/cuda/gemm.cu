// Products of many rows with a matrix on the tensor cores: each warp multiplies up to 64 x 64 outputs over steps of 64
// inputs, stages that asynchronous copies bring ahead; operands of the next 16 inputs are read while those before are
// multiplied. Right for every shape. Rows of 64 elements are swizzled by 16-byte chunk so that ldmatrix meets no bank
// twice. Every tile adds the inputs up in the same order: which one is taken changes no bit.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "cuda/kernels.h"
#include "cuda/tensor_core.cuh"

namespace vireo::cuda {
namespace {

// Of a row of a stage: inputs, bytes, 16-byte chunks.
constexpr int kDepth = 64, kRowBytes = kDepth * 2, kChunks = kRowBytes / 16;
constexpr int kRowTilesOfGroup = 16;

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
  bool y_fours;  // four outputs beside each other (of kSiluPairs: two) can be written at once
  bool pairs;
  Into into;
};

// How a product is cut: a block's rows and outputs, a warp's, stages, blocks of a multiprocessor, and whether x need
// not be aligned.
template <int kRows_, int kOuts_, int kWarpRows_, int kWarpOuts_, int kStages_, int kBlocks_, bool kAnyX_>
struct Tile {
  static constexpr int kRows = kRows_, kOuts = kOuts_, kWarpRows = kWarpRows_, kWarpOuts = kWarpOuts_;
  static constexpr int kStages = kStages_, kBlocks = kBlocks_;
  static constexpr bool kAnyX = kAnyX_;
  static constexpr int kWarpsOfRow = kOuts / kWarpOuts, kThreads = kRows / kWarpRows * kWarpsOfRow * 32;
  static constexpr int kStageBytes = (kRows + kOuts) * kRowBytes, kSharedBytes = kStages * kStageBytes;
  // Sums on their way out: rows of floats, padded so that they meet no bank twice.
  static constexpr int kSumStride = kWarpOuts + 8, kWarpSums = kWarpRows * kSumStride;
  static constexpr int kLanesOfRow = kWarpOuts / 4, kRowsAtOnce = 32 / kLanesOfRow;
  static_assert(kThreads / 32 * kWarpSums * 4 <= kSharedBytes);
};

// A thread's part of copying `kRows` rows of a matrix, stage after stage: one chunk of every kStep-th row. Rows behind
// the end are the last one again: what becomes of them is not stored.
template <int kRows, int kThreads>
struct Copier {
  static constexpr int kStep = kThreads / kChunks, kCount = kRows / kStep;
  const char* from;
  uint32_t offsets[kCount], to;
  int left;  // inputs from mine on

  __device__ __forceinline__ Copier(const bf16* matrix, int64_t stride, int first, int rows, int in, uint32_t part) {
    const int row = threadIdx.x / kChunks, chunk = threadIdx.x % kChunks;
    from = reinterpret_cast<const char*>(matrix + first * stride + chunk * 8);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      offsets[i] = static_cast<uint32_t>(min(row + i * kStep, rows - 1 - first)) * static_cast<uint32_t>(stride * 2);
    }
    to = part + row * kRowBytes + ((chunk ^ (row & 7)) << 4);
    left = in - chunk * 8;
  }
  // Copy `i` to the memory at `stage`; zeros behind the last input.
  __device__ __forceinline__ void bring(uint32_t stage, int i) const {
    copy_async(stage + to + i * kStep * kRowBytes, from + offsets[i], left > 0);
  }
  __device__ __forceinline__ void bring_all(uint32_t stage) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) bring(stage, i);
  }
  // To the next stage. Sums of `from` and each offset would take twice the registers.
  __device__ __forceinline__ void advance() {
    from += kRowBytes;
    keep_in_registers(from);
    left -= kDepth;
  }
};

// The rows of x of one stage where they are not aligned.
template <typename T>
__device__ __forceinline__ void bring_element_wise(const GemmArguments& a, uint32_t stage, int row0, int step) {
  for (int at = threadIdx.x; at < T::kRows * kChunks; at += T::kThreads) {
    const int row = at / kChunks, chunk = at % kChunks, k = step * kDepth + chunk * 8;
    const bf16* from = a.x + static_cast<int64_t>(row0 + row) * a.x_stride + k;
    const int count = row0 + row < a.rows ? a.in - k : 0;
    uint32_t v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t low = 2 * j < count ? from[2 * j].bits : 0, high = 2 * j + 1 < count ? from[2 * j + 1].bits : 0;
      v[j] = low | high << 16;
    }
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(stage + row * kRowBytes + ((chunk ^ (row & 7)) << 4)),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
  }
}

// Operands of a warp's product over 16 inputs.
template <typename T>
struct Operands {
  static constexpr int kOfX = T::kWarpRows / 16, kOfW = T::kWarpOuts / 16, kLoads = kOfX + kOfW;
  uint32_t x[kOfX][4], w[kOfW][4];

  // One of kLoads, from a lane's first chunks of the stage; both are multiples of 128 but for the swizzled chunk. Of w
  // the matrices are the two halves of k of outputs 0..7, then of 8..15: what one product takes must lie in registers
  // beside each other.
  __device__ __forceinline__ void load(uint32_t xs, uint32_t ws, int k, int n) {
    if (n < kOfW) load_matrices(w[n], (ws ^ k * 32) + n * 16 * kRowBytes);
    if (n >= kOfW) load_matrices(x[n - kOfW], (xs ^ k * 32) + (n - kOfW) * 16 * kRowBytes);
  }
};

template <typename T>
using Sums = float[T::kWarpRows / 16][T::kWarpOuts / 8][4];

// The products of `o`, with `between(m)` ahead of the m-th of them.
template <typename T, typename Between>
__device__ __forceinline__ void multiply(Sums<T>& sums, const Operands<T>& o, Between between) {
  constexpr int kOuts = T::kWarpOuts / 8;
#pragma unroll
  for (int i = 0; i < T::kWarpRows / 16; ++i) {
#pragma unroll
    for (int n = 0; n < kOuts; ++n) {
      const int j = i % 2 ? kOuts - 1 - n : n;  // to and fro: one operand stays
      between(i * kOuts + n);
      multiply_add(sums[i][j], o.x[i], o.w[j / 2][j % 2 * 2], o.w[j / 2][j % 2 * 2 + 1]);
    }
  }
}

// kAligned: as a.x_aligned says; two loops, since branches in one keep its instructions from being mixed.
template <typename T, bool kAligned>
__device__ __forceinline__ void multiply_tile(const GemmArguments& a, uint32_t base, int row0, int out0,
                                              Sums<T>& sums) {
  using O = Operands<T>;
  using Rows = Copier<T::kRows, T::kThreads>;
  using Outs = Copier<T::kOuts, T::kThreads>;
  constexpr int kProducts = O::kOfX * O::kOfW * 2;                // of 16 inputs
  constexpr int kCopies = (Rows::kCount + Outs::kCount + 2) / 3;  // a third of a stage
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int steps = (a.in + kDepth - 1) / kDepth;
  Rows rows(a.x, a.x_stride, row0, a.rows, a.in, 0);
  Outs outs(a.w, a.w_stride, out0, a.out, a.in, T::kRows * kRowBytes);
  // Weights are there before the kernel ahead is done.
#pragma unroll
  for (int s = 0; s < T::kStages - 1; ++s, outs.advance()) outs.bring_all(base + s * T::kStageBytes);
  wait_for_previous();
#pragma unroll
  for (int s = 0; s < T::kStages - 1; ++s, rows.advance()) {
    if (kAligned) {
      rows.bring_all(base + s * T::kStageBytes);
    } else {
      bring_element_wise<T>(a, base + s * T::kStageBytes, row0, s);
    }
    commit_copies();
  }

  const auto chunk_at = [](int row, int chunk) { return row * kRowBytes + ((chunk ^ (row & 7)) << 4); };
  const uint32_t xs = chunk_at(warp / T::kWarpsOfRow * T::kWarpRows + lane % 16, lane / 16);
  const uint32_t ws =
      chunk_at(T::kRows + warp % T::kWarpsOfRow * T::kWarpOuts + lane / 16 * 8 + lane % 8, lane / 8 % 2);
  O operands[2];
  wait_for_copies<T::kStages - 2>();
  __syncthreads();
#pragma unroll
  for (int n = 0; n < O::kLoads; ++n) operands[0].load(base + xs, base + ws, 0, n);
  uint32_t stage = base, free = base + (T::kStages - 1) * T::kStageBytes;
  const uint32_t end = base + T::kSharedBytes;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    if (!kAligned) bring_element_wise<T>(a, free, row0, step + T::kStages - 1);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k == 3) {
        stage = stage + T::kStageBytes == end ? base : stage + T::kStageBytes;
        free = free + T::kStageBytes == end ? base : free + T::kStageBytes;
        rows.advance();
        outs.advance();
      }
      multiply<T>(sums, operands[k % 2], [&](int m) {
#pragma unroll
        for (int n = 0; n < O::kLoads; ++n) {
          if (n * kProducts * 3 / 4 / O::kLoads != m) continue;
          operands[(k + 1) % 2].load(stage + xs, stage + ws, (k + 1) % 4, n);
        }
#pragma unroll
        for (int n = 0; n < kCopies; ++n) {
          const int copy = k * kCopies + n, of_outs = copy - Rows::kCount;
          if (k == 3 || n * kProducts / kCopies != m) continue;
          if (of_outs < 0 && kAligned) rows.bring(free, copy);
          if (of_outs >= 0 && of_outs < Outs::kCount) outs.bring(free, of_outs);
        }
      });
      if (k != 2) continue;
      // The next stage is there, and this one has been read by all.
      commit_copies();
      wait_for_copies<T::kStages - 2>();
      __syncthreads();
    }
  }
}

// Which output a column of the product is.
__device__ __forceinline__ int output_of(const GemmArguments& a, int column) {
  return a.pairs ? column / 2 + column % 2 * (a.out / 2) : column;
}

template <Into kInto>
__device__ __forceinline__ float finished(float v) {
  return kInto == Into::kGeluTanh ? gelu_tanh(v) : kInto == Into::kGeluErf ? gelu_erf(v) : v;
}

// A lane's four columns of every kStep-th row of its warp, which can be read and written at once.
template <typename T, Into kInto>
__device__ __forceinline__ void finish_fours(const GemmArguments& a, const float* from, int row0, int column,
                                             float4 bias) {
  constexpr int kStep = T::kRowsAtOnce;
  constexpr int kRows = T::kWarpRows / kStep, kMost = kInto == Into::kStore ? 8 : kInto == Into::kAdd ? 16 : 2;
  constexpr int kCount = kMost < kRows ? kMost : kRows;
#pragma unroll 1
  for (int n0 = 0; n0 < kRows; n0 += kCount) {
    float4 y[kCount];
#pragma unroll
    for (int n = 0; n < kCount && kInto == Into::kAdd; ++n) {
      // All are on their way together.
      const int64_t row = min(row0 + (n0 + n) * kStep, a.rows - 1);
      y[n] = *reinterpret_cast<const float4*>(static_cast<const float*>(a.y) + row * a.y_stride + column);
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const int r = (n0 + n) * kStep;
      if (row0 + r >= a.rows) return;
      float4 v = *reinterpret_cast<const float4*>(from + r * T::kSumStride);
      v.x += bias.x, v.y += bias.y, v.z += bias.z, v.w += bias.w;
      const int64_t row = static_cast<int64_t>(row0 + r) * a.y_stride;
      if (kInto == Into::kSiluPairs) {
        uint32_t* to = reinterpret_cast<uint32_t*>(static_cast<bf16*>(a.y) + row + column / 2);
        *to = pack_bf16(silu(v.x) * v.y, silu(v.z) * v.w);
        continue;
      }
      v.x = finished<kInto>(v.x), v.y = finished<kInto>(v.y), v.z = finished<kInto>(v.z), v.w = finished<kInto>(v.w);
      if (kInto == Into::kAdd) v.x += y[n].x, v.y += y[n].y, v.z += y[n].z, v.w += y[n].w;
      if (a.y_float) {
        *reinterpret_cast<float4*>(static_cast<float*>(a.y) + row + column) = v;
      } else {
        *reinterpret_cast<uint2*>(static_cast<bf16*>(a.y) + row + column) = {pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)};
      }
    }
  }
}

// The same one by one.
template <typename T>
__device__ __forceinline__ void finish_each(const GemmArguments& a, const float* from, int row0, int column) {
  const int step = a.into == Into::kSiluPairs ? 2 : 1;
#pragma unroll 1
  for (int i = 0; i < 4 && column + i < a.out; i += step) {
    const int o = step == 2 ? (column + i) / 2 : output_of(a, column + i);
    const float bias = a.bias ? a.bias[o] : 0.0f, bias_of_factor = a.bias && step == 2 ? a.bias[o + a.out / 2] : 0.0f;
#pragma unroll 1
    for (int r = 0; r < T::kWarpRows && row0 + r < a.rows; r += T::kRowsAtOnce) {
      const int64_t at = static_cast<int64_t>(row0 + r) * a.y_stride + o;
      float v = from[r * T::kSumStride + i] + bias;
      if (step == 2) v = silu(v) * (from[r * T::kSumStride + i + 1] + bias_of_factor);
      if (a.into == Into::kGeluTanh) v = gelu_tanh(v);
      if (a.into == Into::kGeluErf) v = gelu_erf(v);
      if (a.into == Into::kAdd) v += static_cast<float*>(a.y)[at];
      if (a.y_float) {
        static_cast<float*>(a.y)[at] = v;
      } else {
        store_float(static_cast<bf16*>(a.y) + at, v);
      }
    }
  }
}

template <typename T>
__device__ __forceinline__ void finish_columns(const GemmArguments& a, const float* from, int row0, int column) {
  if (!a.y_fours || column + 4 > a.out) return finish_each<T>(a, from, row0, column);
  float bias[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) bias[i] = a.bias ? a.bias[output_of(a, column + i)] : 0.0f;
  const float4 four = {bias[0], bias[1], bias[2], bias[3]};
  switch (a.into) {
    case Into::kStore:
      return finish_fours<T, Into::kStore>(a, from, row0, column, four);
    case Into::kAdd:
      return finish_fours<T, Into::kAdd>(a, from, row0, column, four);
    case Into::kGeluTanh:
      return finish_fours<T, Into::kGeluTanh>(a, from, row0, column, four);
    case Into::kGeluErf:
      return finish_fours<T, Into::kGeluErf>(a, from, row0, column, four);
    case Into::kSiluPairs:
      return finish_fours<T, Into::kSiluPairs>(a, from, row0, column, four);
  }
}

// A warp's sums go through its part of shared memory, so that what it reads and writes lies together.
template <typename T>
__device__ __forceinline__ void finish_tile(const GemmArguments& a, float* shared, int row0, int out0,
                                            const Sums<T>& sums) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float* mine = shared + warp * T::kWarpSums;
  wait_for_copies<0>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < T::kWarpRows / 16; ++i) {
#pragma unroll
    for (int j = 0; j < T::kWarpOuts / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* to = mine + (i * 16 + half * 8 + lane / 4) * T::kSumStride + j * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(to) = {sums[i][j][half * 2], sums[i][j][half * 2 + 1]};
      }
    }
  }
  __syncwarp();
  const int row = lane / T::kLanesOfRow, column = lane % T::kLanesOfRow * 4;
  finish_columns<T>(a, mine + row * T::kSumStride + column, row0 + warp / T::kWarpsOfRow * T::kWarpRows + row,
                    out0 + warp % T::kWarpsOfRow * T::kWarpOuts + column);
}

// Blocks that run together share rows and outputs, which the second cache then holds: kRowTilesOfGroup tiles of rows
// with one of outputs after the other.
template <typename T>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks) gemm_kernel(const __grid_constant__ GemmArguments a) {
  extern __shared__ __align__(128) uint4 shared[];
  const int row_tiles = (a.rows + T::kRows - 1) / T::kRows, out_tiles = (a.out + T::kOuts - 1) / T::kOuts;
  const int group = blockIdx.x / (kRowTilesOfGroup * out_tiles), in_group = blockIdx.x % (kRowTilesOfGroup * out_tiles);
  const int first = group * kRowTilesOfGroup, tiles = min(row_tiles - first, kRowTilesOfGroup);
  const int row0 = (first + in_group % tiles) * T::kRows, out0 = in_group / tiles * T::kOuts;
  let_next_start();
  Sums<T> sums = {};
  if (T::kAnyX && !a.x_aligned) {
    multiply_tile<T, false>(a, shared_address(shared), row0, out0, sums);
  } else {
    multiply_tile<T, true>(a, shared_address(shared), row0, out0, sums);
  }
  finish_tile<T>(a, reinterpret_cast<float*>(shared), row0, out0, sums);
}

// Large and Middle are for many tiles: the one reads least, of the other a block multiplies while its neighbour begins
// or ends. Few is for as many tiles as there are multiprocessors, Small for so few that they wait for memory. Few and
// Small fit in 99 KB.
using Large = Tile<128, 256, 64, 64, 3, 1, false>;
using Middle = Tile<128, 128, 64, 64, 3, 2, false>;
using Few = Tile<128, 128, 64, 32, 3, 1, false>;
using Small = Tile<64, 64, 32, 32, 6, 2, true>;

template <typename T>
int64_t blocks_of(const GemmArguments& a) {
  return int64_t{(a.rows + T::kRows - 1) / T::kRows} * ((a.out + T::kOuts - 1) / T::kOuts);
}

template <typename T>
void run(const Queue& queue, const GemmArguments& a) {
  static SharedMemory memory;
  memory.allow(reinterpret_cast<const void*>(gemm_kernel<T>), T::kSharedBytes);
  launch(queue, gemm_kernel<T>, static_cast<unsigned>(blocks_of<T>(a)), T::kThreads, T::kSharedBytes, a);
}

// What the busiest multiprocessor has to do: so much for the first of its blocks and so much for each more, in
// microseconds of 2048 inputs as timed on one H200.
template <typename T>
float time_of(const Queue& queue, const GemmArguments& a, float first, float next) {
  if (T::kSharedBytes > queue.block_shared_bytes) return INFINITY;
  const int64_t blocks = (blocks_of<T>(a) + queue.multiprocessors - 1) / queue.multiprocessors;
  return first + next * static_cast<float>(blocks - 1);
}

void run(const Queue& queue, const GemmArguments& a) {
  const float large = time_of<Large>(queue, a, 39, 39), few = time_of<Few>(queue, a, 25, 26),
              small = time_of<Small>(queue, a, 15, 9);
  // A block that has a multiprocessor for itself leaves it idle too often.
  const bool two = 2 * Middle::kSharedBytes <= queue.block_shared_bytes;
  const float middle = two ? time_of<Middle>(queue, a, 26, 20) : INFINITY;
  const float least = std::min({large, middle, few, small});
  if (!a.x_aligned || small == least) return run<Small>(queue, a);
  if (few == least) return run<Few>(queue, a);
  if (middle == least) return run<Middle>(queue, a);
  run<Large>(queue, a);
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
  const bool halves = into == Into::kSiluPairs;
  const int at_once = halves ? 2 : 4;
  a.y_fours = halves == a.pairs && !(halves && a.y_float) && out.stride % at_once == 0 &&
              reinterpret_cast<uintptr_t>(out.data) % (at_once * size_of(out.dtype)) == 0;
  run(queue, a);
}

}  // namespace vireo::cuda
