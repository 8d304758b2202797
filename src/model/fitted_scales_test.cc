// Fitted scales lose what they say, never more than the usual ones, and leave alone what has nothing to choose.
// SPDX-License-Identifier: Apache-2.0
#include "model/fitted_scales.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace vireo {
namespace {

constexpr int64_t kCols = 39;  // the last group has 7

struct Coded {
  std::vector<uint8_t> codes = std::vector<uint8_t>(static_cast<size_t>(code_bytes(Tier::kW4, kCols)));
  std::vector<bf16> scales = std::vector<bf16>(static_cast<size_t>(tier_groups(kCols)));
};

double lost(Tier tier, const Coded& coded, const bf16* row, const float* importance) {
  float back[kCols];
  dequantize_row(tier, coded.codes.data(), coded.scales.data(), kCols, back);
  double sum = 0;
  for (int64_t c = 0; c < kCols; ++c) {
    const double d = double{back[c]} - to_float(row[c]);
    sum += importance[c] * d * d;
  }
  return sum;
}

TEST(FittedScales, LoseWhatTheySayAndLessThanTheUsual) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const Tier tier : {Tier::kW4, Tier::kInt4}) {
    double all = 0, usual = 0;
    for (int i = 0; i < 100; ++i) {
      bf16 row[kCols];
      float importance[kCols];
      for (int64_t c = 0; c < kCols; ++c) {
        row[c] = to_bf16(normal(random));
        importance[c] = std::exp(2 * normal(random));
      }
      Coded fitted, plain;
      const double told = quantize_row_fitted(tier, row, importance, kCols, fitted.codes.data(), fitted.scales.data());
      quantize_row(tier, row, kCols, plain.codes.data(), plain.scales.data());
      const double measured = lost(tier, fitted, row, importance);
      EXPECT_NEAR(told, measured, 1e-5 * measured);
      EXPECT_LE(measured, lost(tier, plain, row, importance) * (1 + 1e-5));
      all += measured;
      usual += lost(tier, plain, row, importance);
    }
    EXPECT_LT(all, 0.8 * usual) << tier_name(tier);
  }
}

TEST(FittedScales, WhatTheCodesHoldExactlyKeepsItsScale) {
  bf16 row[kCols];
  float importance[kCols];
  for (int64_t c = 0; c < kCols; ++c) {
    row[c] = to_bf16(from_e2m1(static_cast<uint8_t>((c * 5 + 7) % 16)));
    importance[c] = 1;
  }
  Coded fitted, plain;
  EXPECT_EQ(quantize_row_fitted(Tier::kW4, row, importance, kCols, fitted.codes.data(), fitted.scales.data()), 0);
  quantize_row(Tier::kW4, row, kCols, plain.codes.data(), plain.scales.data());
  EXPECT_EQ(fitted.codes, plain.codes);
}

TEST(FittedScales, ZerosAndWhatIsNotFiniteAreAsUsual) {
  for (const float first : {0.0f, 1e-38f, INFINITY, NAN}) {
    bf16 row[kCols] = {to_bf16(first)};
    const std::vector<float> importance(kCols, 1);
    Coded fitted, plain;
    EXPECT_EQ(
        quantize_row_fitted(Tier::kInt4, row, importance.data(), kCols, fitted.codes.data(), fitted.scales.data()), 0);
    quantize_row(Tier::kInt4, row, kCols, plain.codes.data(), plain.scales.data());
    EXPECT_EQ(fitted.codes, plain.codes);
    EXPECT_EQ(std::memcmp(fitted.scales.data(), plain.scales.data(), fitted.scales.size() * sizeof(bf16)), 0);
  }
}

}  // namespace
}  // namespace vireo
