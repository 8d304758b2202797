// SPDX-License-Identifier: Apache-2.0
#include "model/mrope.h"

#include <gtest/gtest.h>

namespace vireo {
namespace {

TextConfig published() {
  TextConfig c;
  c.head_dim = 128;
  c.rope_theta = 5e6;
  c.mrope_section = {24, 20, 20};
  return c;
}

// The bound j < 60 cannot be seen in the outputs of short prompts: frequencies 60 to 63 stay with t.
TEST(TextRope, AxesAreInterleavedUpToThreeTimesTheSection) {
  const TextRope rope = text_rope(published());
  ASSERT_EQ(rope.axis.size(), 64u);
  for (int j = 0; j < 64; ++j) EXPECT_EQ(rope.axis[static_cast<size_t>(j)], j < 60 ? j % 3 : 0) << j;
}

TEST(TextRope, UnequalSectionsEndEachOnTheirOwn) {
  TextConfig c = published();
  c.head_dim = 32;
  c.mrope_section = {9, 2, 5};
  const TextRope rope = text_rope(c);
  const std::vector<int32_t> expected = {0, 1, 2, 0, 1, 2, 0, 0, 2, 0, 0, 2, 0, 0, 2, 0};
  EXPECT_EQ(rope.axis, expected);
}

TEST(TextRope, AnglesOfTheWorkedExample) {
  const TextRope rope = text_rope(published());
  const double position[3] = {4, 26, 71};
  const auto angle = [&](size_t j) { return position[rope.axis[j]] * rope.inv_freq[j]; };
  EXPECT_NEAR(angle(0), 4, 1e-6);
  EXPECT_NEAR(angle(1), 20.431580, 1e-5);
  EXPECT_NEAR(angle(2), 43.844540, 1e-5);
  EXPECT_NEAR(angle(3), 1.941090, 1e-6);
  EXPECT_NEAR(angle(4), 9.914886, 1e-6);
  EXPECT_NEAR(angle(5), 21.276556, 1e-5);
  EXPECT_NEAR(angle(57), 4.323046e-6, 1e-11);
  EXPECT_NEAR(angle(58), 2.208167e-5, 1e-10);
  EXPECT_NEAR(angle(59), 4.738549e-5, 1e-10);
  EXPECT_NEAR(angle(60), 2.097856e-6, 1e-11);
  EXPECT_NEAR(angle(63), 1.018032e-6, 1e-11);
}

TEST(PromptPositions, TextAlone) {
  int32_t next = 7;
  const auto p = prompt_positions(3, {}, next);
  EXPECT_EQ(p, (std::vector<Position>{{7, 7, 7}, {8, 8, 8}, {9, 9, 9}}));
  EXPECT_EQ(next, 10);
}

TEST(PromptPositions, TheWorkedExampleOf1581Tokens) {
  const VisualRun run{4, 23, 68};
  int32_t next = 0;
  const auto p = prompt_positions(1581, std::span(&run, 1), next);
  ASSERT_EQ(p.size(), 1581u);
  EXPECT_EQ(next, 85);
  EXPECT_EQ(next - 1581, -1496);
  EXPECT_EQ(p[3], (Position{3, 3, 3}));
  EXPECT_EQ(p[5], (Position{4, 4, 5}));
  EXPECT_EQ(p[71], (Position{4, 4, 71}));
  EXPECT_EQ(p[72], (Position{4, 5, 4}));
  EXPECT_EQ(p[1567], (Position{4, 26, 71}));
  EXPECT_EQ(p[1568], (Position{72, 72, 72}));
  EXPECT_EQ(p[1580], (Position{84, 84, 84}));
}

TEST(PromptPositions, TwoImages) {
  const VisualRun runs[] = {{4, 8, 10}, {86, 15, 20}};
  int32_t next = 0;
  const auto p = prompt_positions(399, runs, next);
  EXPECT_EQ(p[4], (Position{4, 4, 4}));
  EXPECT_EQ(p[83], (Position{4, 11, 13}));
  EXPECT_EQ(p[84], (Position{14, 14, 14}));
  EXPECT_EQ(p[86], (Position{16, 16, 16}));
  EXPECT_EQ(p[385], (Position{16, 30, 35}));
  EXPECT_EQ(p[386], (Position{36, 36, 36}));
  EXPECT_EQ(next - 399, -350);
}

// An image and a two-patch clip in one prompt, tall grids: the next position follows the longer side of each run.
TEST(PromptPositions, ImageAndClipTogether) {
  const VisualRun runs[] = {{1, 3, 1}, {6, 1, 2}, {9, 1, 2}};
  int32_t next = 0;
  const auto p = prompt_positions(12, runs, next);
  const std::vector<Position> expected = {{0, 0, 0}, {1, 1, 1}, {1, 2, 1}, {1, 3, 1}, {4, 4, 4},  {5, 5, 5},
                                          {6, 6, 6}, {6, 6, 7}, {8, 8, 8}, {9, 9, 9}, {9, 9, 10}, {11, 11, 11}};
  EXPECT_EQ(p, expected);
  EXPECT_EQ(next, 12);
}

}  // namespace
}  // namespace vireo
