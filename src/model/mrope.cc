// SPDX-License-Identifier: Apache-2.0
#include "model/mrope.h"

#include <algorithm>
#include <cmath>

namespace vireo {

std::vector<Position> prompt_positions(int64_t tokens, std::span<const VisualRun> runs, int32_t& next) {
  std::vector<Position> positions;
  positions.reserve(static_cast<size_t>(tokens));
  const auto text_until = [&](int64_t end) {
    for (; static_cast<int64_t>(positions.size()) < end; ++next) positions.push_back({next, next, next});
  };
  for (const VisualRun& run : runs) {
    text_until(run.first);
    for (int32_t r = 0; r < run.rows; ++r) {
      for (int32_t c = 0; c < run.cols; ++c) positions.push_back({next, next + r, next + c});
    }
    next += std::max(run.rows, run.cols);
  }
  text_until(tokens);
  return positions;
}

TextRope text_rope(const TextConfig& config) {
  TextRope rope;
  const int64_t n = config.head_dim / 2;
  for (int64_t j = 0; j < n; ++j) {
    const double exponent = 2.0 * static_cast<double>(j) / static_cast<double>(config.head_dim);
    rope.inv_freq.push_back(static_cast<float>(1.0 / std::pow(config.rope_theta, exponent)));
    rope.axis.push_back(0);
  }
  // Axis a owns frequencies a, a + 3, ... below 3 * section[a]; the rest stays with t.
  for (int32_t a = 1; a < 3; ++a) {
    const int64_t end = std::min<int64_t>(n, int64_t{3} * config.mrope_section[static_cast<size_t>(a)]);
    for (int64_t j = a; j < end; j += 3) rope.axis[static_cast<size_t>(j)] = a;
  }
  return rope;
}

}  // namespace vireo
