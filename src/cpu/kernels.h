// The inner loops of the CPU backend, as one table per instruction set. All tables come from the same source (kernels.inc),
// compiled with other flags and lane counts; the table is chosen at run time.
//
// Matrices are packed in panels of 16 outputs: [pairs of k][16 outputs][2 values], bf16, zeros where a matrix ends. One panel
// row is one 64-byte line: it feeds a bf16 dot product as it is, and splits into two float vectors by a shift and a mask.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "cpu/tier_panels.h"

namespace vireo::cpu {

inline constexpr int kPanelOuts = 16;
// Panels of one work item and of one page of keys.
inline constexpr int kGroupPanels = 4;
inline constexpr int kGroupOuts = kPanelOuts * kGroupPanels;

inline int64_t pairs_of(int64_t k) {
  return (k + 1) / 2;
}
// bf16 values of one panel.
inline int64_t panel_size(int64_t k) {
  return pairs_of(k) * kPanelOuts * 2;
}
inline int64_t panels_of(int64_t outs) {
  return (outs + kPanelOuts - 1) / kPanelOuts;
}

struct Kernels {
  const char* name;
  bool rounds_to_bf16;  // rows enter products as bf16, else as float
  int input_bytes;      // of one value of such a row

  // One row of k values in the form that products read, padded with a zero to an even count.
  void (*to_input)(const float* x, int64_t k, void* input);
  // y[r * y_stride + o] = sum over k of inputs[r][k] * panel value (o, k), for rows in [0, rows) and 16 * panels outputs;
  // input rows are `input_stride` values apart, panels follow each other. Every output is summed in the order of k, whatever
  // the number of rows and panels.
  void (*product)(const void* inputs, int64_t input_stride, int64_t rows, const bf16* panels, int64_t count,
                  int64_t pairs, float* y, int64_t y_stride);
  // Up to 16 rows of a bf16 matrix, `stride` apart, as one panel.
  void (*pack_panel)(const bf16* rows, int64_t stride, int64_t outs, int64_t k, bf16* panel);

  // A row of `cols` floats as tier_product reads it, with zeros up to whole groups of 16: floats times a power of two, and one behind
  // them that makes up for it; or 16-bit integers, and behind them a scale for each group.
  void (*to_tier_input)(const TierPanels& panels, const float* x, int64_t cols, void* row);
  // As product, over panels [first, first + count) of quantised weights; rows are `row_bytes` apart.
  void (*tier_product)(const TierPanels& panels, const void* inputs, int64_t row_bytes, int64_t rows, int64_t first,
                       int64_t count, float* y, int64_t y_stride);

  // scores[0, count) * scale become weights relative to the running maximum, in input form with zeros up to 64; returns the
  // factor for what was summed before.
  float (*soften)(float* scores, int count, float scale, float* largest, float* sum, void* weights);
  // acc = acc * keep + x
  void (*blend)(const float* x, float keep, int64_t n, float* acc);

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
  // Reads memory as fast as it can, in four streams; the sum only makes sure that it did.
  uint32_t (*read_sum)(const void* data, int64_t bytes);
};

const Kernels& portable_kernels();
const Kernels& avx2_kernels();         // only on processors with AVX2, FMA and F16C
const Kernels& avx512_kernels();       // only on processors with AVX-512 F, BW, VL and DQ
const Kernels& avx512_bf16_kernels();  // and BF16 and VNNI
const Kernels& neon_kernels();         // any aarch64
const Kernels& neon_bf16_kernels();    // only aarch64 with BF16 instructions (Armv8.6, some before)

// The sets that this build has and this processor can run, best first.
std::vector<const Kernels*> usable_kernels();
// By name, or the best one for "auto". Throws Error(kUsage) with the usable names.
const Kernels& find_kernels(const std::string& name);

}  // namespace vireo::cpu
