// What the kernels for products of few rows share: their arguments, the rows of x in shared memory, and what becomes of a product.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/device.cuh"
#include "cuda/kernels.h"
#include "cuda/tensor_core.cuh"
#include "cuda/tier_codes.cuh"

namespace vireo::cuda {

struct GemvArguments {
  const bf16* w;
  int64_t stride;  // of w, elements
  int out;
  int in;
  const void* x;
  int64_t x_stride;
  int rows;
  const float* norm;  // x is float32 and is normalised, or null: x is bf16
  float eps;
  const float* bias;
  void* y;
  int64_t y_stride;
  bool y_float;
  bool pairs;  // row 2 j and 2 j + 1 of w are outputs j and j + out / 2
  Into into;
};

inline constexpr int kTileOuts = 8;
inline constexpr int kStep = 64;  // inputs of one step of a warp: two chunks of 16 bytes per lane

// Bytes from a staged row to the next: 64 more than a multiple of 128, so that 16-byte reads of two rows meet no bank twice.
__host__ __device__ inline constexpr int staged_stride(int padded) {
  return padded * 2 + 64;
}

// Who brings a row: one team, or two that take every other two pairs of a thread. The sum of squares is the same: a thread of one team adds
// what would be the other's apart.
template <int kTeams>
struct Crew {
  int threads;  // of a team
  int team = 0;
  __device__ __forceinline__ int column(int k) const {
    const int thread = kTeams == 1 ? threadIdx.x : threadIdx.x - team * threads;
    return (kTeams == 1 ? k : k / 2 * 4 + team * 2 + k % 2) * threads + thread;
  }
  __device__ __forceinline__ int sum_of(int k) const { return kTeams == 1 ? k / 2 % 2 : 0; }
};

// The first pairs of norm weights of a thread and 1 / columns, read and divided before the kernel ahead has ended.
template <int kPairs>
struct NormWeights {
  float2 pairs[kPairs];
  float inverse;
};

__device__ __forceinline__ float2 pair_of(const float* row, int c, int columns) {
  if (2 * c + 1 < columns && reinterpret_cast<uintptr_t>(row) % 8 == 0) return reinterpret_cast<const float2*>(row)[c];
  return {2 * c < columns ? row[2 * c] : 0.0f, 2 * c + 1 < columns ? row[2 * c + 1] : 0.0f};
}

template <int kPairs, int kTeams>
__device__ __forceinline__ NormWeights<kPairs> first_weights(const GemvArguments& a, Crew<kTeams> crew) {
  NormWeights<kPairs> w;
  w.inverse = a.norm ? 1.0f / static_cast<float>(a.in) : 0.0f;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    w.pairs[i] = a.norm ? pair_of(a.norm, crew.column(i), a.in) : float2{};
  }
  return w;
}

// A float32 row in memory by pairs, a source as fetch() reads it.
struct PlainPairs {
  const float* row;
  int columns;
  using Raw = float2;
  __device__ __forceinline__ Raw begin(int c) const { return pair_of(row, c, columns); }
  __device__ __forceinline__ bool is_there(Raw) const { return true; }
  __device__ __forceinline__ float2 value(Raw raw, int) const { return raw; }
};

// How four pairs of inputs lie in 16 staged bytes: in their order, with the two in the middle swapped, or in their order and larger by
// kCodedFactor, for weights in a tier.
enum class Staging { kInOrder, kSwapped, kCoded };
template <Staging kStaging>
__device__ __forceinline__ int place_of_pair(int c) {
  return kStaging == Staging::kSwapped ? (c & ~3) | (c & 1) << 1 | (c >> 1 & 1) : c;
}
template <Staging kStaging>
inline constexpr float kSizeOfRows = kStaging == Staging::kCoded ? kCodedFactor : 1.0f;
__device__ __forceinline__ uint32_t coded_rows(uint32_t pair) {
  uint32_t v;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(pair), "r"(0x5f805f80), "r"(0x80008000));
  return v;
}
template <Staging kStaging>
__device__ __forceinline__ uint4 placed(uint4 v) {
  if (kStaging == Staging::kCoded) return {coded_rows(v.x), coded_rows(v.y), coded_rows(v.z), coded_rows(v.w)};
  return kStaging == Staging::kInOrder ? v : uint4{v.x, v.z, v.y, v.w};
}

// A float32 row, normalised; sum_of_all(a, b) adds both over all who bring it.
template <Staging kStaging, int kPairs, int kTeams, typename Row, typename Sum>
__device__ __forceinline__ void stage_normed(const GemvArguments& a, const NormWeights<kPairs>& w, const Row& row,
                                             int padded, Crew<kTeams> crew, Sum sum_of_all, uint32_t* to) {
  typename Row::Raw raw[kPairs];
  float2 x[kPairs];
  float squares[2] = {0, 0};
  fetch(
      row, [&](int i) { return crew.column(i); }, raw);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) x[i] = row.value(raw[i], crew.column(i));
  const auto pair_at = [&](int c) {
    typename Row::Raw one[1];
    fetch(
        row, [&](int) { return c; }, one);
    return row.value(one[0], c);
  };
#pragma unroll
  for (int i = 0; i < kPairs; ++i) squares[crew.sum_of(i)] += x[i].x * x[i].x + x[i].y * x[i].y;
#pragma unroll 1
  for (int i = kPairs; crew.column(i) < padded / 2; ++i) {
    const float2 v = pair_at(crew.column(i));
    (crew.sum_of(i) == 0 ? squares[0] : squares[1]) += v.x * v.x + v.y * v.y;
  }
  const float scale = rsqrtf(sum_of_all(squares[0], squares[1]) * w.inverse + a.eps) * kSizeOfRows<kStaging>;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int c = crew.column(i);
    if (c < padded / 2) to[place_of_pair<kStaging>(c)] = pack_bf16(w.pairs[i].x * (x[i].x * scale), w.pairs[i].y * (x[i].y * scale));
  }
#pragma unroll 1
  for (int i = kPairs; crew.column(i) < padded / 2; ++i) {
    const int c = crew.column(i);
    const float2 v = pair_at(c), g = pair_of(a.norm, c, a.in);
    to[place_of_pair<kStaging>(c)] = pack_bf16(g.x * (v.x * scale), g.y * (v.y * scale));
  }
}

// Rows of x as bf16 in shared memory, zeros up to `padded` columns, by the first `threads` threads; sum_of_all(a, b) adds both over these.
template <Staging kStaging, int kPairs, typename Sum>
__device__ __forceinline__ void stage_rows(const GemvArguments& a, const NormWeights<kPairs>& w, int padded,
                                           int threads, Sum sum_of_all, char* staged) {
#pragma unroll 1
  for (int r = 0; r < a.rows; ++r) {
    char* to = staged + r * staged_stride(padded);
    if (a.norm) {
      const PlainPairs row = {static_cast<const float*>(a.x) + r * a.x_stride, a.in};
      stage_normed<kStaging>(a, w, row, padded, Crew<1>{threads}, sum_of_all, reinterpret_cast<uint32_t*>(to));
      continue;
    }
    const bf16* from = static_cast<const bf16*>(a.x) + r * a.x_stride;
    if (a.in % 8 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
#pragma unroll 4
      for (int c = threadIdx.x; c < padded / 8; c += threads) {
        const bool inside = c < a.in / 8;
        const uint4 v = inside ? reinterpret_cast<const uint4*>(from)[c] : uint4{0, 0, 0, 0};
        reinterpret_cast<uint4*>(to)[c] = placed<kStaging>(v);
      }
    } else {
#pragma unroll 1
      for (int c = threadIdx.x; c < padded; c += threads) {
        const float v = c < a.in ? load_float(from + c) * kSizeOfRows<kStaging> : 0.0f;
        store_float(reinterpret_cast<bf16*>(to) + place_of_pair<kStaging>(c / 2) * 2 + c % 2, v);
      }
    }
  }
}

__device__ __forceinline__ void put(const GemvArguments& a, int r, int o, float v) {
  const int64_t at = r * a.y_stride + o;
  if (a.y_float) {
    static_cast<float*>(a.y)[at] = v;
  } else {
    store_float(static_cast<bf16*>(a.y) + at, v);
  }
}

// What becomes of the product with row `row` of the weights. For pairs `v` is the gate and `up` the row that follows; `old` is what kAdd
// adds to.
struct Finished {
  int output;
  float value;
  bool counts;  // of a pair the first one
};
__device__ __forceinline__ Finished finished(const GemvArguments& a, int row, float v, float up, float old) {
  const int half = a.out / 2;
  const int o = a.pairs ? row / 2 + (row % 2) * half : row;
  if (a.bias) v += a.bias[o];
  switch (a.into) {
    case Into::kStore:
      return {o, v, true};
    case Into::kGeluTanh:
      return {o, gelu_tanh(v), true};
    case Into::kGeluErf:
      return {o, gelu_erf(v), true};
    case Into::kAdd:
      return {o, old + v, true};
    case Into::kSiluPairs:
      break;
  }
  if (a.bias) up += a.bias[half + min(o, half - 1)];
  return {o, silu(v) * up, row % 2 == 0};
}

// The same for row r of x, to where it belongs.
__device__ __forceinline__ void finish(const GemvArguments& a, int r, int row, float v, float up, float old) {
  const Finished f = finished(a, row, v, up, old);
  if (f.counts) put(a, r, f.output, f.value);
}

// The parameters that are needed late, read now: their way from memory is long when it is busy.
__device__ __forceinline__ GemvArguments in_registers(const GemvArguments& a) {
  GemvArguments b = a;
  int into = static_cast<int>(a.into), pairs = a.pairs, y_float = a.y_float;
  keep_in_registers(b.x);
  keep_in_registers(b.y);
  keep_in_registers(b.y_stride);
  keep_in_registers(b.bias);
  keep_in_registers(into);
  keep_in_registers(pairs);
  keep_in_registers(y_float);
  b.into = static_cast<Into>(into);
  b.pairs = pairs;
  b.y_float = y_float;
  return b;
}

// One product after the other: 8 outputs of up to 8 rows from 64 inputs. w and x hold 16 bytes of this lane's output and row, for two
// times 32 inputs. Rows 8 to 15 of the operand are nobody's. Which inputs a lane brings does not matter while both operands agree.
__device__ __forceinline__ void multiply_step(float (&even)[4], float (&odd)[4], uint4 w0, uint4 w1, uint4 x0,
                                              uint4 x1) {
  multiply_add(even, {x0.x, 0, x0.y, 0}, w0.x, w0.y);
  multiply_add(odd, {x0.z, 0, x0.w, 0}, w0.z, w0.w);
  multiply_add(even, {x1.x, 0, x1.y, 0}, w1.x, w1.y);
  multiply_add(odd, {x1.z, 0, x1.w, 0}, w1.z, w1.w);
}

inline GemvArguments gemv_arguments(const CudaLinear& w, Tensor x, const Norm* norm, Into into, Tensor out) {
  GemvArguments a = {};
  a.w = w.weights;
  a.stride = w.stride;
  a.out = static_cast<int>(w.out);
  a.in = static_cast<int>(w.in);
  a.x = x.data;
  a.x_stride = x.stride;
  a.rows = static_cast<int>(x.rows);
  a.norm = norm ? norm->weight.row<float>(0) : nullptr;
  a.eps = norm ? norm->eps : 0;
  a.bias = w.bias;
  a.y = out.data;
  a.y_stride = out.stride;
  a.y_float = out.dtype == DType::kF32;
  a.pairs = w.order == CudaLinear::Order::kPairs;
  a.into = into;
  return a;
}

inline int padded_columns(const CudaLinear& w) {
  return static_cast<int>((w.stride + kStep - 1) / kStep * kStep);
}

}  // namespace vireo::cuda
