// The inner loops of the CPU backend, as one table per instruction set. All tables come from the same source
// (kernels.inc), compiled with other flags and lane counts; the table is chosen at run time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace vireo::cpu {

// Running softmax of one query head: the result so far is acc / sum, with weights relative to exp(largest).
struct AttendState {
  float largest;
  float sum;
  float* acc;  // [head_dim]
};

// Most rows of x that one call of dot_tile takes.
inline constexpr int kTileRows = 4;

struct Kernels {
  const char* name;
  bool rounds_to_bf16;  // activations enter matrix products as bf16

  // y[r * y_stride + o] = x[r] . w[o] for rows in [0, rows) and outs in [0, outs): rows <= kTileRows. The sum over k has the
  // same order for every rows, outs and place in the tile.
  void (*dot_tile)(const float* x, int64_t x_stride, int rows, const bf16* w, int64_t w_stride, int64_t outs, int64_t k,
                   float* y, int64_t y_stride);

  // Adds `n` (at most 64) keys and values, `stride` apart, to the state of one query head.
  void (*attend_f32)(const float* q, const float* k, const float* v, int64_t stride, int n, int head_dim, float scale,
                     AttendState* state);
  void (*attend_bf16)(const float* q, const bf16* k, const bf16* v, int64_t stride, int n, int head_dim, float scale,
                      AttendState* state);

  void (*rms_norm)(const float* x, const float* w, int64_t n, float eps, float* out);
  void (*layer_norm)(const float* x, const float* w, const float* b, int64_t n, float eps, float* out);
  // Turns the pairs (j, n + j) of one head of 2 n values.
  void (*rope)(float* head, const float* cos_sin, int64_t n);
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*gelu_tanh)(float* x, int64_t n);
  void (*gelu_erf)(float* x, int64_t n);
  void (*add)(const float* x, int64_t n, float* inout);
  void (*to_bf16)(const float* x, int64_t n, bf16* out);
  void (*from_bf16)(const bf16* x, int64_t n, float* out);
};

const Kernels& portable_kernels();
const Kernels& avx2_kernels();    // only on processors with AVX2 and FMA
const Kernels& avx512_kernels();  // only on processors with AVX-512 F, BW, VL and DQ

// The sets that this build has and this processor can run, best first.
std::vector<const Kernels*> usable_kernels();
// By name, or the best one for "auto". Throws Error(kUsage) with the usable names.
const Kernels& find_kernels(const std::string& name);

}  // namespace vireo::cpu
