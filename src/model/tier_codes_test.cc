// The codes for searches are those of the tiers.
// SPDX-License-Identifier: Apache-2.0
#include "model/tier_codes.h"

#include <gtest/gtest.h>

#include <random>

namespace vireo {
namespace {

template <typename Codes, typename Decode>
void expect_codes(float value, Decode decode) {
  const float nearest = Codes::nearest(value);
  EXPECT_EQ(nearest, decode(Codes::code(value))) << value;
  EXPECT_EQ(nearest, decode(Codes::code(nearest))) << value;
}

void expect_codes(float value) {
  expect_codes<E2m1>(value, from_e2m1);
  expect_codes<E4m3>(value, from_e4m3);
  expect_codes<Int8Codes>(value, [](uint8_t code) { return static_cast<float>(static_cast<int8_t>(code)); });
  expect_codes<Int4Codes>(value, [](uint8_t code) { return static_cast<float>(code < 8 ? code : code - 16); });
}

TEST(TierCodes, AreThoseOfTheTiers) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 20000; ++i) expect_codes(normal(random) * std::exp2(3 * normal(random)));
}

TEST(TierCodes, TiesAndEndsAreThoseOfTheTiers) {
  for (int code = 0; code < 0x7f; ++code) {
    const float value = from_e4m3(static_cast<uint8_t>(code)), next = from_e4m3(static_cast<uint8_t>(code + 1));
    for (const float v : {value, (value + next) / 2}) {
      if (std::isnan(v)) continue;
      expect_codes(v);
      expect_codes(-v);
    }
  }
  for (const float v : {.25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.f, 6.f, 6.5f, 7.5f, 127.5f, 448.f, 449.f, 1e9f})
    expect_codes(v);
}

}  // namespace
}  // namespace vireo
