// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace vireo {
namespace {

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bf16(1.00390625f).bits, 0x3f80);  // halfway between 1 and 1 + 2^-7: to even
  EXPECT_EQ(to_bf16(1.01171875f).bits, 0x3f82);  // halfway, odd below: up
  EXPECT_EQ(to_bf16(1.00390637f).bits, 0x3f81);  // just above halfway
  EXPECT_EQ(to_bf16(-0.0f).bits, 0x8000);
}

TEST(Bf16, KeepsInfinityAndNan) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_float(to_bf16(inf)), inf);
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(to_float(to_bf16(std::numeric_limits<float>::max())), inf);
}

TEST(Bf16, AllValuesSurviveTheRoundTrip) {
  for (uint32_t u = 0; u < 65536; ++u) {
    const bf16 value{static_cast<uint16_t>(u)};
    if (std::isnan(to_float(value))) continue;
    EXPECT_EQ(to_bf16(to_float(value)).bits, value.bits);
  }
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::kBF16), 2u);
  EXPECT_EQ(size_of(DType::kI64), 8u);
  EXPECT_STREQ(name_of(DType::kF8E4M3), "F8_E4M3");
}

}  // namespace
}  // namespace vireo
