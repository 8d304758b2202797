// SPDX-License-Identifier: Apache-2.0
#include "model/vision_positions.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

namespace vireo {
namespace {

// Index in merge-block order of patch (i, j).
size_t place(int i, int j, int w) {
  return static_cast<size_t>(((i / 2) * (w / 2) + j / 2) * 4 + (i % 2) * 2 + j % 2);
}

void expect_taps(const PatchPositions& p, size_t n, std::array<int, 4> taps, std::array<float, 4> weights) {
  for (size_t k = 0; k < 4; ++k) {
    EXPECT_EQ(p.taps[4 * n + k], taps[k]);
    EXPECT_NEAR(p.weights[4 * n + k], weights[k], 1e-6);
  }
}

TEST(PatchPositions, SpotValuesOfAGridLargerThanTheTable) {
  const PatchPositions p = patch_positions(1, 46, 136, 2, 48);
  ASSERT_EQ(p.taps.size(), 4u * 6256);
  expect_taps(p, place(0, 1, 136), {0, 1, 48, 49}, {.651852f, .348148f, 0, 0});
  expect_taps(p, place(1, 1, 136), {48, 49, 96, 97}, {.622881f, .332675f, .028971f, .015473f});
  expect_taps(p, place(22, 8, 136), {1058, 1059, 1106, 1107}, {.004774f, .017449f, .210041f, .767737f});
  expect_taps(p, place(45, 135, 136), {2303, 2303, 2303, 2303}, {1, 0, 0, 0});
}

TEST(PatchPositions, RowsAndColumnsInMergeBlockOrderRepeatPerFrame) {
  const PatchPositions p = patch_positions(2, 2, 4, 2, 8);
  const std::vector<int32_t> frame = {0, 0, 0, 1, 1, 0, 1, 1, 0, 2, 0, 3, 1, 2, 1, 3};
  ASSERT_EQ(p.rows_cols.size(), 32u);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(p.rows_cols[i], frame[i % 16]) << i;
}

TEST(PatchPositions, WeightsSumToOneAlsoForAOneRowTable) {
  for (int side : {1, 2, 24, 48}) {
    const PatchPositions p = patch_positions(1, 6, 2, 2, side);
    for (size_t n = 0; n < 12; ++n) {
      EXPECT_NEAR(std::accumulate(&p.weights[4 * n], &p.weights[4 * n] + 4, 0.0f), 1.0f, 1e-6);
      for (size_t k = 0; k < 4; ++k) EXPECT_LT(p.taps[4 * n + k], side * side);
    }
  }
}

TEST(VisionRope, FrequenciesOfHeadDims64And72) {
  const VisionRope r64 = vision_rope(64, 10000.0), r72 = vision_rope(72, 10000.0);
  ASSERT_EQ(r64.inv_freq.size(), 32u);
  ASSERT_EQ(r72.inv_freq.size(), 36u);
  EXPECT_NEAR(r64.inv_freq[1], .562341f, 1e-6);
  EXPECT_NEAR(r64.inv_freq[15], 1.778279e-4f, 1e-9);
  EXPECT_NEAR(r72.inv_freq[1], .599484f, 1e-6);
  EXPECT_NEAR(r72.inv_freq[17], 1.668101e-4f, 1e-9);
  for (size_t k = 0; k < 16; ++k) {
    EXPECT_EQ(r64.axis[k], 0);
    EXPECT_EQ(r64.axis[16 + k], 1);
    EXPECT_EQ(r64.inv_freq[k], r64.inv_freq[16 + k]);
  }
}

}  // namespace
}  // namespace vireo
