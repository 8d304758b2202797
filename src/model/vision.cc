// SPDX-License-Identifier: Apache-2.0
#include "model/vision.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "model/vision_positions.h"

namespace vireo {

VisionTower::VisionTower(const VisionConfig& config, const VisionWeights& weights, Backend& backend,
                         const PixelScale& scale)
    : config_(config), weights_(weights), backend_(backend), ops_(backend.ops()), scale_(scale) {
  const VisionRope rope = vision_rope(config.head_dim(), config.rope_theta);
  const int64_t n = static_cast<int64_t>(rope.inv_freq.size());
  inv_freq_ = backend.allocate(1, n, DType::kF32);
  axis_ = backend.allocate(1, n, DType::kI32);
  backend.upload(rope.inv_freq.data(), inv_freq_.view);
  backend.upload(rope.axis.data(), axis_.view);
}

std::vector<VisionTower::Scratch> VisionTower::scratch(const VisionConfig& c, int64_t rows, DType act, DType residual) {
  const int64_t merged_rows = rows / c.merge_unit(), merged_cols = c.hidden_size * c.merge_unit();
  return {{&Buffers::bytes, rows, c.patch_dim(), DType::kU8},
          {&Buffers::values, rows, c.patch_dim(), act},
          {&Buffers::x, rows, c.hidden_size, residual},
          {&Buffers::h, rows, c.hidden_size, act},
          {&Buffers::qkv, rows, 3 * c.hidden_size, act},
          {&Buffers::attn, rows, c.hidden_size, act},
          {&Buffers::mlp, rows, c.intermediate_size, act},
          {&Buffers::cos_sin, rows, c.head_dim(), DType::kF32},
          {&Buffers::positions, rows, 2, DType::kI32},
          {&Buffers::taps, rows, 4, DType::kI32},
          {&Buffers::weights, rows, 4, DType::kF32},
          {&Buffers::merged, merged_rows, merged_cols, act},
          {&Buffers::merged_mlp, merged_rows, merged_cols, act}};
}

uint64_t VisionTower::scratch_bytes(const VisionConfig& c, int64_t rows, DType act, DType residual) {
  uint64_t bytes = 0;
  for (const Scratch& s : scratch(c, rows, act, residual)) {
    bytes += static_cast<uint64_t>(s.rows * s.cols) * size_of(s.dtype);
  }
  return bytes;
}

void VisionTower::reserve(int64_t rows) {
  if (rows <= buffers_.rows) return;
  buffers_ = {};
  placed_ = {};
  for (const Scratch& s : scratch(config_, rows, backend_.activation_type(), backend_.residual_type())) {
    buffers_.*s.tensor = backend_.allocate(s.rows, s.cols, s.dtype);
  }
  buffers_.rows = rows;
}

void VisionTower::place_positions(const VisionInput& input) {
  const int64_t rows = input.patches();
  // Pictures of one size after the other, as a camera's are, have the same.
  if (placed_ == std::array{input.t, input.h, input.w}) return;
  placed_ = {};
  const PatchPositions p = patch_positions(input.t, input.h, input.w, static_cast<int>(config_.merge_size),
                                           static_cast<int>(config_.position_side));
  backend_.upload(p.rows_cols.data(), rows_of(buffers_.positions, rows));
  backend_.upload(p.taps.data(), rows_of(buffers_.taps, rows));
  backend_.upload(p.weights.data(), rows_of(buffers_.weights, rows));
  ops_.rope_angles(rows_of(buffers_.positions, rows), {inv_freq_.view, axis_.view}, rows_of(buffers_.cos_sin, rows));
}

void VisionTower::embed(const VisionInput& input, const Probe* probe) {
  const PartScope part(ops_, "patch embed");
  const int64_t rows = input.patches();
  const Tensor x = rows_of(buffers_.x, rows), values = rows_of(buffers_.values, rows);
  backend_.upload(input.pixels, rows_of(buffers_.bytes, rows));
  ops_.normalize_pixels(rows_of(buffers_.bytes, rows), scale_, values);
  ops_.linear(*weights_.patch_embed, values, x);
  if (probe) (*probe)("vision.patch_embed", x);
  place_positions(input);
  ops_.add_positions(weights_.pos_embed, rows_of(buffers_.taps, rows), rows_of(buffers_.weights, rows), x);
}

void VisionTower::run_block(const VisionBlock& w, int64_t rows, Spans spans) {
  const int64_t hidden = config_.hidden_size;
  const int head_dim = static_cast<int>(config_.head_dim());
  const AttentionShape shape{.heads = static_cast<int>(config_.num_heads),
                             .kv_heads = static_cast<int>(config_.num_heads),
                             .head_dim = head_dim,
                             .scale = 1.0f / std::sqrt(static_cast<float>(head_dim))};
  const Tensor x = rows_of(buffers_.x, rows), h = rows_of(buffers_.h, rows), qkv = rows_of(buffers_.qkv, rows);
  const Tensor attn = rows_of(buffers_.attn, rows), mlp = rows_of(buffers_.mlp, rows);
  const Tensor cos_sin = rows_of(buffers_.cos_sin, rows);

  ops_.layer_norm(x, w.norm1, h);
  ops_.linear(*w.qkv, h, qkv);
  ops_.rope(qkv.slice_cols(0, 2 * hidden), cos_sin, head_dim);
  ops_.attend_spans(qkv.slice_cols(0, hidden), qkv.slice_cols(hidden, hidden), qkv.slice_cols(2 * hidden, hidden),
                    spans, shape, attn);
  ops_.linear_add(*w.proj, attn, h, x);

  ops_.layer_norm(x, w.norm2, h);
  ops_.linear_gelu(*w.fc1, h, Gelu::kTanh, mlp);
  ops_.linear_add(*w.fc2, mlp, h, x);
}

void VisionTower::merge(const Merger& w, int64_t rows, bool norm_after_concat, Tensor out) {
  const PartScope part(ops_, "merger");
  const int64_t merged_rows = rows / config_.merge_unit(), merged_cols = config_.hidden_size * config_.merge_unit();
  const Tensor x = rows_of(buffers_.x, rows), merged = rows_of(buffers_.merged, merged_rows);
  const Tensor mlp = rows_of(buffers_.merged_mlp, merged_rows);
  // The same memory, seen as patch rows or as merged rows.
  if (norm_after_concat) {
    ops_.layer_norm(x.reshape_cols(merged_cols), w.norm, merged);
  } else {
    ops_.layer_norm(x, w.norm, merged.reshape_cols(config_.hidden_size));
  }
  ops_.linear_gelu(*w.fc1, merged, Gelu::kErf, mlp);
  ops_.linear(*w.fc2, mlp, out);
}

void VisionTower::encode(const VisionInput& input, const VisionOutput& output, const Probe* probe,
                         const std::function<void()>& check_cancelled) {
  const int64_t rows = input.patches();
  reserve(rows);
  embed(input, probe);
  std::vector<int32_t> bounds;
  for (int t = 0; t <= input.t; ++t) bounds.push_back(t * input.h * input.w);
  const Spans spans{bounds.data(), input.t};
  const auto taps = config_.deepstack_layers;
  for (size_t i = 0; i < weights_.blocks.size(); ++i) {
    if (check_cancelled) check_cancelled();
    {
      const PartScope part(ops_, "vision block", static_cast<int64_t>(i));
      run_block(weights_.blocks[i], rows, spans);
    }
    if (probe) (*probe)("vision.block." + std::to_string(i), rows_of(buffers_.x, rows));
    const auto tap = std::find(taps.begin(), taps.end(), static_cast<int>(i));
    if (tap == taps.end()) continue;
    const size_t j = static_cast<size_t>(tap - taps.begin());
    merge(weights_.deepstack_mergers[j], rows, true, output.deepstack[j]);
    if (probe) (*probe)("vision.deepstack." + std::to_string(j), output.deepstack[j]);
  }
  merge(weights_.merger, rows, false, output.merged);
  placed_ = {input.t, input.h, input.w};  // an encoding that was cancelled does not come here
  if (probe) (*probe)("vision.merged", output.merged);
}

}  // namespace vireo
