// The vision tower: patches to image rows for the decoder, and the DeepStack rows that are added after its first layers.
// Reference: Qwen3VLVisionModel of Hugging Face transformers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <vector>

#include "model/probe.h"
#include "model/weights.h"

namespace vireo {

// Patches of one picture or clip: `pixels` is U8 [t * h * w, patch_dim] on the host, rows in merge-block order.
struct VisionInput {
  int t = 0;
  int h = 0;
  int w = 0;
  const uint8_t* pixels = nullptr;
  int64_t patches() const { return int64_t{t} * h * w; }
};

// Where the results go: [patches / merge_unit, out_hidden_size] each, backend memory.
struct VisionOutput {
  Tensor merged;
  std::vector<Tensor> deepstack;
};

class VisionTower {
 public:
  VisionTower(const VisionConfig& config, const VisionWeights& weights, Backend& backend, const PixelScale& scale);

  // `check_cancelled` is called between blocks and may throw.
  void encode(const VisionInput& input, const VisionOutput& output, const Probe* probe = nullptr,
              const std::function<void()>& check_cancelled = {});

  // Bytes of the scratch for a picture of `rows` patches, for a backend of these activation and residual types.
  static uint64_t scratch_bytes(const VisionConfig& config, int64_t rows, DType activation, DType residual);

 private:
  // Scratch for `rows` patches, grown between pictures and never inside an op.
  struct Buffers {
    int64_t rows = 0;
    OwnedTensor bytes, values, x, h, qkv, attn, mlp, cos_sin, positions, taps, weights, merged, merged_mlp;
  };

  struct Scratch {
    OwnedTensor Buffers::*tensor;
    int64_t rows, cols;
    DType dtype;
  };

  static std::vector<Scratch> scratch(const VisionConfig& config, int64_t rows, DType activation, DType residual);
  void reserve(int64_t rows);
  void embed(const VisionInput& input, const Probe* probe);
  void place_positions(const VisionInput& input);
  void run_block(const VisionBlock& block, int64_t rows, Spans spans);
  void merge(const Merger& merger, int64_t rows, bool norm_after_concat, Tensor out);
  Tensor rows_of(const OwnedTensor& t, int64_t rows) const { return t.view.slice_rows(0, rows); }

  const VisionConfig& config_;
  const VisionWeights& weights_;
  Backend& backend_;
  Ops& ops_;
  PixelScale scale_;
  OwnedTensor inv_freq_, axis_;
  Buffers buffers_;
  std::array<int, 3> placed_ = {};  // grid of the positions in the buffers
};

}  // namespace vireo
