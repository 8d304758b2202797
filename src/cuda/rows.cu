// Everything that works row by row and is bound by memory: norms, rotations, activations, rows moved by index, embeddings and
// pixels. One block per row unless rows are short.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "cuda/device.cuh"
#include "cuda/kernels.h"

namespace vireo::cuda {
namespace {

constexpr int kThreads = 256;

// A tensor as kernels take it.
template <typename T>
struct Rows {
  T* data;
  int64_t stride;
  int cols;
  __device__ T* row(int64_t r) const { return data + r * stride; }
};

template <typename T>
Rows<T> rows_of(Tensor t) {
  return {static_cast<T*>(t.data), t.stride, static_cast<int>(t.cols)};
}

// Calls body(T{}) with the element type of the tensor, float or bf16.
template <typename Body>
void with_type(Tensor t, Body body) {
  CHECK(t.dtype == DType::kF32 || t.dtype == DType::kBF16);
  if (t.dtype == DType::kF32) {
    body(float{});
  } else {
    body(bf16{});
  }
}

// Threads of a block for rows of this many columns: whole warps, 32 to kThreads.
int threads_for(int64_t cols) {
  return static_cast<int>(std::min<int64_t>(kThreads, (cols + 31) / 32 * 32));
}

// Rows in grid.x, groups of columns in grid.y.
template <typename In, typename Out>
__global__ void rms_norm_kernel(Rows<In> x, const float* w, int n, float eps, Rows<Out> out) {
  let_next_start();
  wait_for_previous();
  const In* from = x.row(blockIdx.x) + int64_t{blockIdx.y} * n;
  Out* to = out.row(blockIdx.x) + int64_t{blockIdx.y} * n;
  float squares = 0;
  for (int c = threadIdx.x; c < n; c += blockDim.x) {
    const float v = load_float(from + c);
    squares = fmaf(v, v, squares);
  }
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(n) + eps);
  for (int c = threadIdx.x; c < n; c += blockDim.x) store_float(to + c, w[c] * (load_float(from + c) * scale));
}

// Both norms of float32 rows to bf16, four columns at a time and the row in registers: kQuads of them per thread. Without `b` that of squares.
constexpr int kNormThreads = 128;
template <int kQuads, bool kLayer>
__global__ void __launch_bounds__(kNormThreads)
    norm_quads_kernel(Rows<float> x, const float* w, const float* b, float eps, Rows<bf16> out) {
  const int quads = x.cols / 4;
  const auto quad_of = [&](const float* row, int i) {
    const int c = i * kNormThreads + threadIdx.x;
    return c < quads ? reinterpret_cast<const float4*>(row)[c] : float4{0, 0, 0, 0};
  };
  const auto sum_of = [](float4 v) { return (v.x + v.y) + (v.z + v.w); };
  let_next_start();
  wait_for_previous();
  const float* from = x.row(blockIdx.x);
  float4 v[kQuads];
  float sum = 0, squares = 0;
#pragma unroll
  for (int i = 0; i < kQuads; ++i) v[i] = quad_of(from, i);
  const float n = static_cast<float>(x.cols);
  if (kLayer) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) sum += sum_of(v[i]);
    const float mean = block_sum(sum) / n;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const bool inside = i * kNormThreads + threadIdx.x < quads;
      v[i] = inside ? float4{v[i].x - mean, v[i].y - mean, v[i].z - mean, v[i].w - mean} : float4{0, 0, 0, 0};
    }
  }
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    squares += sum_of({v[i].x * v[i].x, v[i].y * v[i].y, v[i].z * v[i].z, v[i].w * v[i].w});
  }
  const float scale = rsqrtf(block_sum(squares) / n + eps);
  uint2* to = reinterpret_cast<uint2*>(out.row(blockIdx.x));
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const int c = i * kNormThreads + threadIdx.x;
    if (c >= quads) continue;
    const float4 g = quad_of(w, i), add = kLayer ? quad_of(b, i) : float4{0, 0, 0, 0};
    to[c] = {pack_bf16(v[i].x * scale * g.x + add.x, v[i].y * scale * g.y + add.y),
             pack_bf16(v[i].z * scale * g.z + add.z, v[i].w * scale * g.w + add.w)};
  }
}

template <int kQuads>
void launch_quads(const Queue& queue, Tensor x, const Norm& norm, bool layer, Tensor out) {
  launch(queue, layer ? norm_quads_kernel<kQuads, true> : norm_quads_kernel<kQuads, false>,
         static_cast<unsigned>(x.rows), kNormThreads, 0, rows_of<float>(x), norm.weight.row<float>(0),
         layer ? norm.bias.row<float>(0) : nullptr, norm.eps, rows_of<bf16>(out));
}

// Whether that is what was done: on devices like those where it was measured.
bool norm_quads(const Queue& queue, Tensor x, const Norm& norm, bool layer, Tensor out) {
  const bool fits = queue.early_start && x.dtype == DType::kF32 && out.dtype == DType::kBF16 &&
                    norm.weight.cols == x.cols && x.cols % 4 == 0 && x.stride % 4 == 0 && out.stride % 4 == 0 &&
                    reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && reinterpret_cast<uintptr_t>(out.data) % 8 == 0;
  const int64_t quads = (x.cols / 4 + kNormThreads - 1) / kNormThreads;
  if (!fits || quads > 10) return false;
  if (quads <= 2) {
    launch_quads<2>(queue, x, norm, layer, out);
  } else if (quads <= 4) {
    launch_quads<4>(queue, x, norm, layer, out);
  } else {
    launch_quads<10>(queue, x, norm, layer, out);
  }
  return true;
}

template <typename In, typename Out>
__global__ void layer_norm_kernel(Rows<In> x, const float* w, const float* b, float eps, Rows<Out> out) {
  let_next_start();
  wait_for_previous();
  const In* from = x.row(blockIdx.x);
  Out* to = out.row(blockIdx.x);
  float sum = 0;
  for (int c = threadIdx.x; c < x.cols; c += blockDim.x) sum += load_float(from + c);
  const float mean = block_sum(sum) / static_cast<float>(x.cols);
  float squares = 0;
  for (int c = threadIdx.x; c < x.cols; c += blockDim.x) {
    const float v = load_float(from + c) - mean;
    squares = fmaf(v, v, squares);
  }
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(x.cols) + eps);
  for (int c = threadIdx.x; c < x.cols; c += blockDim.x) {
    store_float(to + c, (load_float(from + c) - mean) * scale * w[c] + b[c]);
  }
}

struct Angles {
  Rows<int32_t> positions;
  const float* inv_freq;
  const int32_t* axis;
  int n;
  Rows<float> out;

  Angles(Tensor of, const RopeTable& table, Tensor cos_sin)
      : positions(rows_of<int32_t>(of)),
        inv_freq(table.inv_freq.row<float>(0)),
        axis(table.axis.row<int32_t>(0)),
        n(static_cast<int>(table.inv_freq.cols)),
        out(rows_of<float>(cos_sin)) {}
  __device__ __forceinline__ void make(int row) const {
    float* to = out.row(row);
    for (int j = threadIdx.x; j < n; j += blockDim.x) {
      const float angle = static_cast<float>(positions.row(row)[axis[j]]) * inv_freq[j];
      sincosf(angle, to + n + j, to + j);
    }
  }
};

__global__ void rope_angles_kernel(Angles angles) {
  let_next_start();
  wait_for_previous();
  angles.make(blockIdx.x);
}

template <typename T>
__global__ void rope_kernel(Rows<T> x, Rows<float> cos_sin, int n) {
  let_next_start();
  wait_for_previous();
  const float *cosine = cos_sin.row(blockIdx.x), *sine = cosine + n;
  for (int i = threadIdx.x; i < x.cols / 2; i += blockDim.x) {
    const int j = i % n;
    T* pair = x.row(blockIdx.x) + i / n * 2 * n + j;
    const float a = load_float(pair), b = load_float(pair + n);
    store_float(pair, a * cosine[j] - b * sine[j]);
    store_float(pair + n, b * cosine[j] + a * sine[j]);
  }
}

// The same for bf16, eight pairs at a time.
__global__ void rope_octets_kernel(Rows<bf16> x, Rows<float> cos_sin, int n) {
  let_next_start();
  wait_for_previous();
  const float *cosine = cos_sin.row(blockIdx.x), *sine = cosine + n;
  for (int i = threadIdx.x * 8; i < x.cols / 2; i += blockDim.x * 8) {
    const int j = i % n;
    bf16* pairs = x.row(blockIdx.x) + i / n * 2 * n + j;
    const uint4 low = *reinterpret_cast<const uint4*>(pairs), high = *reinterpret_cast<const uint4*>(pairs + n);
    const uint32_t a[4] = {low.x, low.y, low.z, low.w}, b[4] = {high.x, high.y, high.z, high.w};
    uint32_t to_low[4], to_high[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 c = reinterpret_cast<const float2*>(cosine + j)[k], s = reinterpret_cast<const float2*>(sine + j)[k];
      const float a0 = low_bf16(a[k]), a1 = high_bf16(a[k]), b0 = low_bf16(b[k]), b1 = high_bf16(b[k]);
      to_low[k] = pack_bf16(a0 * c.x - b0 * s.x, a1 * c.y - b1 * s.y);
      to_high[k] = pack_bf16(b0 * c.x + a0 * s.x, b1 * c.y + a1 * s.y);
    }
    *reinterpret_cast<uint4*>(pairs) = {to_low[0], to_low[1], to_low[2], to_low[3]};
    *reinterpret_cast<uint4*>(pairs + n) = {to_high[0], to_high[1], to_high[2], to_high[3]};
  }
}

template <typename T>
__global__ void silu_mul_kernel(Rows<T> x, Rows<T> out) {
  let_next_start();
  wait_for_previous();
  const T *gate = x.row(blockIdx.x), *up = gate + out.cols;
  for (int c = threadIdx.x; c < out.cols; c += blockDim.x) {
    store_float(out.row(blockIdx.x) + c, silu(load_float(gate + c)) * load_float(up + c));
  }
}

// Four outputs at a time.
__global__ void silu_pairs_kernel(Rows<bf16> x, Rows<bf16> out) {
  let_next_start();
  wait_for_previous();
  const uint4* from = reinterpret_cast<const uint4*>(x.row(blockIdx.x));
  uint2* to = reinterpret_cast<uint2*>(out.row(blockIdx.x));
  const auto one = [](uint32_t pair) { return silu(low_bf16(pair)) * high_bf16(pair); };
  for (int c = threadIdx.x; c < out.cols / 4; c += blockDim.x) {
    const uint4 v = from[c];
    to[c] = {pack_bf16(one(v.x), one(v.y)), pack_bf16(one(v.z), one(v.w))};
  }
}

template <typename T>
__global__ void gelu_kernel(Rows<T> x, bool erf) {
  let_next_start();
  wait_for_previous();
  for (int c = threadIdx.x; c < x.cols; c += blockDim.x) {
    T* p = x.row(blockIdx.x) + c;
    const float v = load_float(p);
    store_float(p, erf ? gelu_erf(v) : gelu_tanh(v));
  }
}

enum class Move { kAdd, kAddTo, kPutTo, kGather };

// Row r of x goes to row r (kAdd) or index[r] of y; kGather takes row index[r] of x to row r.
template <typename In, typename Out, Move kMove>
__global__ void move_kernel(Rows<In> x, const int32_t* index, Rows<Out> y) {
  let_next_start();
  wait_for_previous();
  const int64_t r = blockIdx.x, there = kMove == Move::kAdd ? r : index[r];
  const In* from = x.row(kMove == Move::kGather ? there : r);
  Out* to = y.row(kMove == Move::kGather ? r : there);
  for (int c = threadIdx.x; c < x.cols; c += blockDim.x) {
    const float v = load_float(from + c);
    const bool adds = kMove == Move::kAdd || kMove == Move::kAddTo;
    store_float(to + c, adds ? load_float(to + c) + v : v);
  }
}

template <Move kMove>
void move(const Queue& queue, Tensor x, Tensor index, Tensor y, int64_t rows) {
  if (rows == 0) return;
  with_type(x, [&](auto in) {
    with_type(y, [&](auto out) {
      launch(queue, move_kernel<decltype(in), decltype(out), kMove>, static_cast<unsigned>(rows), threads_for(x.cols),
             0, rows_of<decltype(in)>(x), static_cast<const int32_t*>(index.data), rows_of<decltype(out)>(y));
    });
  });
}

template <typename Out>
struct Embedding {
  const bf16* table;
  int64_t stride;
  const int32_t* ids;
  Rows<Out> out;

  Embedding(const CudaLinear& of, Tensor step_ids, Tensor x)
      : table(of.weights), stride(of.stride), ids(step_ids.row<int32_t>(0)), out(rows_of<Out>(x)) {}
  __device__ __forceinline__ void make(int row) const {
    const bf16* from = table + ids[row] * stride;
    for (int c = threadIdx.x; c < out.cols; c += blockDim.x) store_float(out.row(row) + c, load_float(from + c));
  }
};

template <typename Out>
__global__ void embed_kernel(Embedding<Out> embedding) {
  let_next_start();
  wait_for_previous();
  embedding.make(blockIdx.x);
}

// Rows in grid.x; blocks of grid.y 0 make x, the others the angles.
template <typename Out>
__global__ void begin_rows_kernel(Embedding<Out> embedding, Angles angles) {
  let_next_start();
  wait_for_previous();
  if (blockIdx.y == 0) {
    embedding.make(blockIdx.x);
  } else {
    angles.make(blockIdx.x);
  }
}

template <typename Out>
__global__ void normalize_pixels_kernel(Rows<uint8_t> bytes, PixelScale scale, Rows<Out> out) {
  let_next_start();
  wait_for_previous();
  const int per_channel = bytes.cols / 3;
  for (int c = threadIdx.x; c < bytes.cols; c += blockDim.x) {
    const int channel = c / per_channel;
    const float v = static_cast<float>(bytes.row(blockIdx.x)[c]);
    store_float(out.row(blockIdx.x) + c, (v - scale.mean[channel]) / scale.std[channel]);
  }
}

template <typename T>
__global__ void add_positions_kernel(const bf16* table, int64_t stride, const int32_t* taps, const float* weights,
                                     Rows<T> inout) {
  let_next_start();
  wait_for_previous();
  const int64_t r = blockIdx.x;
  for (int c = threadIdx.x; c < inout.cols; c += blockDim.x) {
    float sum = 0;
    for (int t = 0; t < 4; ++t) sum = fmaf(weights[4 * r + t], load_float(table + taps[4 * r + t] * stride + c), sum);
    T* p = inout.row(r) + c;
    store_float(p, load_float(p) + sum);
  }
}

}  // namespace

void rms_norm(const Queue& queue, Tensor x, const Norm& norm, Tensor out) {
  if (norm_quads(queue, x, norm, false, out)) return;
  const int n = static_cast<int>(norm.weight.cols);
  const dim3 grid(static_cast<unsigned>(x.rows), static_cast<unsigned>(x.cols / n));
  with_type(x, [&](auto in) {
    with_type(out, [&](auto to) {
      launch(queue, rms_norm_kernel<decltype(in), decltype(to)>, grid, threads_for(n), 0, rows_of<decltype(in)>(x),
             norm.weight.row<float>(0), n, norm.eps, rows_of<decltype(to)>(out));
    });
  });
}

void layer_norm(const Queue& queue, Tensor x, const Norm& norm, Tensor out) {
  if (norm_quads(queue, x, norm, true, out)) return;
  with_type(x, [&](auto in) {
    with_type(out, [&](auto to) {
      launch(queue, layer_norm_kernel<decltype(in), decltype(to)>, static_cast<unsigned>(x.rows), threads_for(x.cols),
             0, rows_of<decltype(in)>(x), norm.weight.row<float>(0), norm.bias.row<float>(0), norm.eps,
             rows_of<decltype(to)>(out));
    });
  });
}

void rope_angles(const Queue& queue, Tensor positions, const RopeTable& table, Tensor cos_sin) {
  launch(queue, rope_angles_kernel, static_cast<unsigned>(positions.rows), threads_for(table.inv_freq.cols), 0,
         Angles(positions, table, cos_sin));
}

void rope(const Queue& queue, Tensor x, Tensor cos_sin, int head_dim) {
  const bool octets = x.dtype == DType::kBF16 && head_dim % 16 == 0 && x.stride % 8 == 0 && cos_sin.stride % 2 == 0 &&
                      reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
  if (octets) {
    return launch(queue, rope_octets_kernel, static_cast<unsigned>(x.rows), threads_for(x.cols / 16), 0,
                  rows_of<bf16>(x), rows_of<float>(cos_sin), head_dim / 2);
  }
  with_type(x, [&](auto t) {
    launch(queue, rope_kernel<decltype(t)>, static_cast<unsigned>(x.rows), threads_for(x.cols / 2), 0,
           rows_of<decltype(t)>(x), rows_of<float>(cos_sin), head_dim / 2);
  });
}

void silu_mul(const Queue& queue, Tensor x, Tensor out) {
  CHECK(x.dtype == out.dtype);
  with_type(x, [&](auto t) {
    launch(queue, silu_mul_kernel<decltype(t)>, static_cast<unsigned>(x.rows), threads_for(out.cols), 0,
           rows_of<decltype(t)>(x), rows_of<decltype(t)>(out));
  });
}

void silu_pairs(const Queue& queue, Tensor x, Tensor out) {
  CHECK(x.dtype == DType::kBF16 && out.dtype == DType::kBF16 && x.cols == 2 * out.cols && out.cols % 4 == 0);
  CHECK(x.stride % 8 == 0 && out.stride % 4 == 0);
  launch(queue, silu_pairs_kernel, static_cast<unsigned>(x.rows), threads_for(out.cols / 4), 0, rows_of<bf16>(x),
         rows_of<bf16>(out));
}

void gelu(const Queue& queue, Tensor x, Gelu kind) {
  with_type(x, [&](auto t) {
    launch(queue, gelu_kernel<decltype(t)>, static_cast<unsigned>(x.rows), threads_for(x.cols), 0,
           rows_of<decltype(t)>(x), kind == Gelu::kErf);
  });
}

void add(const Queue& queue, Tensor x, Tensor inout) {
  move<Move::kAdd>(queue, x, {}, inout, x.rows);
}
void add_rows(const Queue& queue, Tensor x, Tensor index, Tensor inout) {
  move<Move::kAddTo>(queue, x, index, inout, x.rows);
}
void put_rows(const Queue& queue, Tensor x, Tensor index, Tensor inout) {
  move<Move::kPutTo>(queue, x, index, inout, x.rows);
}
void gather_rows(const Queue& queue, Tensor x, Tensor index, Tensor out) {
  move<Move::kGather>(queue, x, index, out, out.rows);
}

void embed(const Queue& queue, const CudaLinear& table, Tensor ids, Tensor out) {
  with_type(out, [&](auto t) {
    launch(queue, embed_kernel<decltype(t)>, static_cast<unsigned>(out.rows), threads_for(out.cols), 0,
           Embedding<decltype(t)>(table, ids, out));
  });
}

void begin_rows(const Queue& queue, const CudaLinear& table, const Step& step, const RopeTable& rope, Tensor x,
                Tensor cos_sin) {
  with_type(x, [&](auto t) {
    launch(queue, begin_rows_kernel<decltype(t)>, dim3(static_cast<unsigned>(x.rows), 2), threads_for(x.cols), 0,
           Embedding<decltype(t)>(table, step.ids, x), Angles(step.positions, rope, cos_sin));
  });
}

void normalize_pixels(const Queue& queue, Tensor bytes, const PixelScale& scale, Tensor out) {
  with_type(out, [&](auto t) {
    launch(queue, normalize_pixels_kernel<decltype(t)>, static_cast<unsigned>(bytes.rows), threads_for(bytes.cols), 0,
           rows_of<uint8_t>(bytes), scale, rows_of<decltype(t)>(out));
  });
}

void add_positions(const Queue& queue, Tensor table, Tensor taps, Tensor weights, Tensor inout) {
  with_type(inout, [&](auto t) {
    launch(queue, add_positions_kernel<decltype(t)>, static_cast<unsigned>(inout.rows), threads_for(inout.cols), 0,
           table.row<bf16>(0), table.stride, taps.row<int32_t>(0), weights.row<float>(0), rows_of<decltype(t)>(inout));
  });
}

}  // namespace vireo::cuda
