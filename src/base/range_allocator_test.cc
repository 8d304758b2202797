// SPDX-License-Identifier: Apache-2.0
#include "base/range_allocator.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

namespace vireo {
namespace {

constexpr uint64_t kUnit = RangeAllocator::kAlignment;

TEST(RangeAllocator, TakesTheFirstGapThatIsLargeEnough) {
  RangeAllocator range(10 * kUnit);
  EXPECT_EQ(range.take(kUnit), 0u);
  EXPECT_EQ(range.take(2 * kUnit + 1), kUnit);  // rounded up to three
  EXPECT_EQ(range.take(1), 4 * kUnit);
  range.give_back(kUnit);
  EXPECT_EQ(range.take(4 * kUnit), 5 * kUnit);
  EXPECT_EQ(range.take(3 * kUnit), kUnit);
  EXPECT_EQ(range.take(2 * kUnit), std::nullopt);
  EXPECT_EQ(range.take(0), 9 * kUnit);
  EXPECT_EQ(range.take(1), std::nullopt);
  EXPECT_EQ(range.used(), 10 * kUnit);
}

TEST(RangeAllocator, JoinsGapsOnBothSides) {
  RangeAllocator range(3 * kUnit);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(range.take(kUnit));
  range.give_back(0);
  range.give_back(2 * kUnit);
  EXPECT_EQ(range.take(2 * kUnit), std::nullopt);
  range.give_back(kUnit);
  EXPECT_EQ(range.take(3 * kUnit), 0u);
  EXPECT_EQ(range.most_used(), 3 * kUnit);
}

TEST(RangeAllocator, PiecesNeverOverlapAndAllComesBack) {
  std::mt19937 random(3);
  constexpr uint64_t kUnits = 1000;
  RangeAllocator range(kUnits * kUnit);
  std::vector<int> owner(kUnits, 0);
  struct Piece {
    uint64_t first, units;
  };
  std::vector<Piece> pieces;
  for (int step = 1; step < 20000; ++step) {
    if (random() % 2 == 0 && !pieces.empty()) {
      std::swap(pieces[random() % pieces.size()], pieces.back());
      range.give_back(pieces.back().first * kUnit);
      for (uint64_t u = 0; u < pieces.back().units; ++u) owner[pieces.back().first + u] = 0;
      pieces.pop_back();
      continue;
    }
    const uint64_t units = 1 + random() % 40;
    const auto at = range.take(units * kUnit - random() % kUnit);
    if (!at) continue;
    pieces.push_back({*at / kUnit, units});
    ASSERT_LE(*at / kUnit + units, kUnits);
    for (uint64_t u = 0; u < units; ++u) ASSERT_EQ(std::exchange(owner[*at / kUnit + u], step), 0);
  }
  for (const Piece& p : pieces) range.give_back(p.first * kUnit);
  EXPECT_EQ(range.used(), 0u);
  EXPECT_EQ(range.take(kUnits * kUnit), 0u);
}

}  // namespace
}  // namespace vireo
