// The generator: that it is a function of seed, name and element, that it stays the same, and that it is normal.
// SPDX-License-Identifier: Apache-2.0
#include "engine/random_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace vireo {
namespace {

std::vector<bf16> values(const RandomValues& random, int64_t first, size_t count) {
  std::vector<bf16> out(count);
  random.fill(first, out);
  return out;
}

std::vector<uint16_t> bits(const std::vector<bf16>& values) {
  std::vector<uint16_t> out;
  for (bf16 v : values) out.push_back(v.bits);
  return out;
}

TEST(RandomValues, AnyPartIsThePartOfTheWhole) {
  const RandomValues random(7, "a", {});
  const auto whole = bits(values(random, 0, 1000));
  for (size_t first : {0, 4, 500, 996}) {
    for (size_t count : {1, 2, 3, 4}) {
      const std::vector<uint16_t> want(whole.begin() + static_cast<int64_t>(first),
                                       whole.begin() + static_cast<int64_t>(first + count));
      EXPECT_EQ(bits(values(random, static_cast<int64_t>(first), count)), want) << first << " " << count;
    }
  }
}

TEST(RandomValues, SeedAndNameDecide) {
  const auto first = [](uint64_t seed, const char* name) { return bits(values({seed, name, {}}, 0, 64)); };
  EXPECT_EQ(first(1, "a"), first(1, "a"));
  EXPECT_NE(first(1, "a"), first(2, "a"));
  EXPECT_NE(first(1, "a"), first(1, "b"));
}

TEST(RandomValues, BytesArePinned) {
  EXPECT_EQ(bits(values({1, "model.language_model.norm.weight", {1, 0.05}}, 0, 4)),
            std::vector<uint16_t>({16244, 16236, 16256, 16256}));
  EXPECT_EQ(bits(values({1, "lm_head.weight", {}}, 0, 6)),
            std::vector<uint16_t>({16353, 15918, 48612, 16076, 16277, 16110}));
}

TEST(RandomValues, AreNormal) {
  constexpr size_t kCount = 1 << 20;
  double sum = 0, squares = 0, fourth = 0, neighbours = 0, previous = 0, largest = 0;
  for (bf16 v : values({3, "b", {}}, 0, kCount)) {
    const double x = to_float(v);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    neighbours += x * previous;
    largest = std::max(largest, std::abs(x));
    previous = x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.005);
  EXPECT_NEAR(squares / kCount, 1, 0.01);
  EXPECT_NEAR(fourth / kCount, 3, 0.1);
  EXPECT_NEAR(neighbours / kCount, 0, 0.005);
  EXPECT_GT(largest, 3.5);
  EXPECT_LT(largest, 3.75);
}

TEST(RandomValues, MeanAndDeviation) {
  double sum = 0, squares = 0;
  constexpr size_t kCount = 1 << 18;
  for (bf16 v : values({3, "c", {1, 0.05}}, 0, kCount)) {
    sum += to_float(v);
    squares += (to_float(v) - 1) * (to_float(v) - 1);
  }
  EXPECT_NEAR(sum / kCount, 1, 0.001);
  EXPECT_NEAR(std::sqrt(squares / kCount), 0.05, 0.001);
}

}  // namespace
}  // namespace vireo
