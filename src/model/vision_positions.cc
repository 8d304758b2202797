// SPDX-License-Identifier: Apache-2.0
#include "model/vision_positions.h"

#include <algorithm>
#include <cmath>

namespace vireo {
namespace {

// Position i of n on a table of `side` entries: the entry below, the one above, and the fraction towards it.
struct Tap {
  int32_t low, high;
  float fraction;
};

Tap tap(int i, int n, int side) {
  const double source = n > 1 ? static_cast<double>(i) * (side - 1) / (n - 1) : 0.0;
  const int low = std::min(static_cast<int>(std::floor(source)), side - 1);
  return {low, std::min(low + 1, side - 1), static_cast<float>(source - low)};
}

void append(PatchPositions& out, int row, int col, const Tap& y, const Tap& x, int side) {
  out.rows_cols.insert(out.rows_cols.end(), {row, col});
  out.taps.insert(out.taps.end(),
                  {y.low * side + x.low, y.low * side + x.high, y.high * side + x.low, y.high * side + x.high});
  const float dy = y.fraction, dx = x.fraction;
  out.weights.insert(out.weights.end(), {(1 - dy) * (1 - dx), (1 - dy) * dx, dy * (1 - dx), dy * dx});
}

}  // namespace

PatchPositions patch_positions(int t, int h, int w, int merge_size, int table_side) {
  std::vector<Tap> ys, xs;
  for (int i = 0; i < h; ++i) ys.push_back(tap(i, h, table_side));
  for (int j = 0; j < w; ++j) xs.push_back(tap(j, w, table_side));
  PatchPositions out;
  for (int frame = 0; frame < t; ++frame) {
    for (int block_row = 0; block_row < h; block_row += merge_size) {
      for (int block_col = 0; block_col < w; block_col += merge_size) {
        for (int i = block_row; i < block_row + merge_size; ++i) {
          for (int j = block_col; j < block_col + merge_size; ++j) {
            append(out, i, j, ys[static_cast<size_t>(i)], xs[static_cast<size_t>(j)], table_side);
          }
        }
      }
    }
  }
  return out;
}

VisionRope vision_rope(int64_t head_dim, double theta) {
  VisionRope rope;
  const int64_t n = head_dim / 4;
  for (int32_t axis = 0; axis < 2; ++axis) {
    for (int64_t k = 0; k < n; ++k) {
      rope.inv_freq.push_back(static_cast<float>(
          1.0 / std::pow(theta, 2.0 * static_cast<double>(k) / (static_cast<double>(head_dim) / 2))));
      rope.axis.push_back(axis);
    }
  }
  return rope;
}

}  // namespace vireo
