// Interleaved MRoPE: the three-axis positions of a prompt and which axis turns which frequency.
// Reference: Qwen3VLModel.get_rope_index and Qwen3VLTextRotaryEmbedding.apply_interleaved_mrope.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "model/config.h"
#include "ops/step.h"

namespace vireo {

// A run of visual tokens of one picture, or of one temporal patch of a clip: rows * cols tokens from token `first` on.
struct VisualRun {
  int64_t first = 0;
  int32_t rows = 0;
  int32_t cols = 0;
};

// Positions of `tokens` tokens that begin at `next`, with the visual runs among them in order; `next` becomes the position of the
// token after them, on all three axes.
std::vector<Position> prompt_positions(int64_t tokens, std::span<const VisualRun> runs, int32_t& next);

struct TextRope {
  std::vector<float> inv_freq;  // [head_dim / 2]
  std::vector<int32_t> axis;    // 0 t, 1 h, 2 w
};

TextRope text_rope(const TextConfig& config);

}  // namespace vireo
