// Products of rows with packed weights, with what follows them done on each tile while it is in cache.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cpu/cpu_ops.h"

namespace vireo::cpu {
namespace {

const PackedLinear& packed(const Linear& w) {
  return static_cast<const PackedLinear&>(w);
}

// Rows of one item: they share the item's weights in the second-level cache. Rows of one tile: what is finished in the first.
constexpr int64_t kItemRows = 192;
constexpr int64_t kTileRows = 48;

}  // namespace

CpuOps::Inputs CpuOps::inputs(Tensor x) {
  // Rows must not lie a multiple of 4 KB apart: they would share cache sets.
  const int64_t stride = (x.cols + 31) / 32 * 32 + 32;
  char* memory = grown(input_memory_, x.rows * stride * k_.input_bytes);
  for_rows(x.rows, x.cols,
           [&](int64_t r) { k_.to_input(x.row<float>(r), x.cols, memory + r * stride * k_.input_bytes); });
  return {memory, stride, x.rows};
}

CpuOps::Inputs CpuOps::tier_inputs(const TierPanels& panels, Tensor x) {
  const int64_t bytes = (panels.input_bytes() + 63) / 64 * 64;
  char* memory = grown(input_memory_, x.rows * bytes);
  for_rows(x.rows, x.cols, [&](int64_t r) { k_.to_tier_input(panels, x.row<float>(r), x.cols, memory + r * bytes); });
  return {memory, bytes, x.rows};
}

// Panels [panel, panel + count) of the tile's rows to their outputs.
void CpuOps::finish(const float* tile, int64_t rows, int64_t row, const PackedLinear& w, int64_t panel, int64_t count,
                    Into into, Tensor out) const {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t p = panel; p < panel + count; ++p) {
      const int64_t first = w.first_out(p), outs = w.outs_of(p);
      const float* from = tile + r * kGroupOuts + (p - panel) * kPanelOuts;
      float* y = out.row<float>(row + r) + first;
      if (into == Into::kAdd) {
        k_.add(from, outs, y);
      } else {
        std::copy_n(from, outs, y);
      }
      if (!w.bias.empty()) k_.add(w.bias.data() + first, outs, y);
      if (into == Into::kGeluTanh) k_.gelu_tanh(y, outs);
      if (into == Into::kGeluErf) k_.gelu_erf(y, outs);
    }
  }
}

// Calls done(tile, rows, first row, first panel, panels) for every tile of x W^T.
template <typename Done>
void CpuOps::for_tiles(const PackedLinear& w, Tensor x, Done done) {
  const bool quantized = reads_codes(w);
  const Inputs in = quantized ? tier_inputs(w.tier, x) : inputs(x);
  const int64_t row_items = (x.rows + kItemRows - 1) / kItemRows, all = panels_of(w.out);
  pool_.run((all + kGroupPanels - 1) / kGroupPanels * row_items, [&](int64_t item, int) {
    const int64_t panel = item / row_items * kGroupPanels, row = item % row_items * kItemRows;
    const int64_t end = std::min(x.rows, row + kItemRows), count = std::min<int64_t>(kGroupPanels, all - panel);
    alignas(64) float tile[kTileRows * kGroupOuts];
    for (int64_t r = row; r < end; r += kTileRows) {
      const int64_t rows = std::min(kTileRows, end - r);
      if (quantized) {
        k_.tier_product(w.tier, in.data + r * in.stride, in.stride, rows, panel, count, tile, kGroupOuts);
      } else {
        k_.product(input_row(in, r), in.stride, rows, w.panel(0, panel), count, w.pairs(), tile, kGroupOuts);
      }
      done(tile, rows, r, panel, count);
    }
  });
}

void CpuOps::multiply(const Linear& linear, Tensor x, Into into, Tensor out) {
  const PackedLinear& w = packed(linear);
  for_tiles(w, x, [&](const float* tile, int64_t rows, int64_t row, int64_t panel, int64_t count) {
    finish(tile, rows, row, w, panel, count, into, out);
  });
}

void CpuOps::linear(const Linear& w, Tensor x, Tensor out) {
  multiply(w, x, Into::kStore, out);
}

void CpuOps::linear_add(const Linear& w, Tensor x, Tensor, Tensor inout) {
  multiply(w, x, Into::kAdd, inout);
}

void CpuOps::linear_gelu(const Linear& w, Tensor x, Gelu kind, Tensor out) {
  multiply(w, x, kind == Gelu::kTanh ? Into::kGeluTanh : Into::kGeluErf, out);
}

void CpuOps::norm_gate_up(const Norm& norm, const Linear& linear, Tensor x, Tensor h, Tensor scratch, Tensor out) {
  const PackedLinear& w = packed(linear);
  if (w.order != PackedLinear::Order::kGateUp) return Ops::norm_gate_up(norm, linear, x, h, scratch, out);
  rms_norm(x, norm, h);
  for_tiles(w, h, [&](const float* tile, int64_t rows, int64_t row, int64_t panel, int64_t count) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t p = 0; p < count; p += 2) {
        const float* gate = tile + r * kGroupOuts + p * kPanelOuts;
        k_.silu_mul(gate, gate + kPanelOuts, kPanelOuts, out.row<float>(row + r) + w.first_out(panel + p));
      }
    }
  });
}

void CpuOps::multiply_row(const PackedLinear& w, int64_t group, const void* input, float* y) const {
  alignas(64) float tile[kGroupOuts];
  const int64_t all = panels_of(w.out);
  for (int64_t p = 0; p < all; p += kGroupPanels) {
    const int64_t count = std::min<int64_t>(kGroupPanels, all - p);
    if (reads_codes(w)) {
      k_.tier_product(w.tier, input, 0, 1, group * all + p, count, tile, kGroupOuts);
    } else {
      k_.product(input, 0, 1, w.panel(group, p), count, w.pairs(), tile, kGroupOuts);
    }
    for (int64_t i = 0; i < count; ++i) std::copy_n(tile + i * kPanelOuts, w.outs_of(p + i), y + w.first_out(p + i));
  }
}

void CpuOps::experts(const Linear& gate_up, const Linear& down, Tensor x, Tensor ids, Tensor weights, Tensor scratch,
                     Tensor inout) {
  const PackedLinear &up = packed(gate_up), &back = packed(down);
  const int64_t n = down.in, k = ids.cols;
  const bool up_coded = reads_codes(up), back_coded = reads_codes(back);
  const Inputs in = up_coded ? tier_inputs(up.tier, x) : inputs(x);
  const int64_t act_bytes = back_coded ? back.tier.input_bytes() : 0;
  char* acts = grown(act_memory_, x.rows * k * act_bytes);
  // scratch row: gate and up (2 n), the activation as input (n) where that is not in a tier's form, the result.
  pool_.run(x.rows * k, [&](int64_t item, int) {
    const int64_t group = ids.row<int32_t>(item / k)[item % k], row = item / k;
    float* gate = scratch.row<float>(item);
    multiply_row(up, group, up_coded ? in.data + row * in.stride : input_row(in, row), gate);
    k_.silu_mul(gate, gate + n, n, gate);
    void* act = gate + n;
    if (back_coded) {
      act = acts + item * act_bytes;
      k_.to_tier_input(back.tier, gate, n, act);
    } else {
      k_.to_input(gate, n, act);
    }
    multiply_row(back, group, act, gate + 3 * n);
  });
  for_rows(x.rows, k * inout.cols, [&](int64_t r) {
    for (int64_t c = 0; c < inout.cols; ++c) {
      float sum = 0;
      for (int64_t j = 0; j < k; ++j) sum += weights.row<float>(r)[j] * (scratch.row<float>(r * k + j) + 3 * n)[c];
      inout.row<float>(r)[c] += sum;
    }
  });
}

}  // namespace vireo::cpu
