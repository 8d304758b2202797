// Where the patches of a grid stand: row and column of each for the rotary embedding, and the bilinear taps into the square table of
// learned position embeddings (align_corners, no antialias). Rows are in merge-block order.
// Reference: Qwen3VLVisionModel.rot_pos_emb and fast_pos_embed_interpolate.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace vireo {

struct PatchPositions {
  std::vector<int32_t> rows_cols;  // [patches, 2]
  std::vector<int32_t> taps;       // [patches, 4]
  std::vector<float> weights;      // [patches, 4]
};

PatchPositions patch_positions(int t, int h, int w, int merge_size, int table_side);

// The first half of the frequencies turns by the row, the second by the column.
struct VisionRope {
  std::vector<float> inv_freq;  // [head_dim / 2]
  std::vector<int32_t> axis;
};

VisionRope vision_rope(int64_t head_dim, double theta);

}  // namespace vireo
