// The search for factors: on products with loud inputs it finds them, on others it does no harm, and what must not change does not.
// SPDX-License-Identifier: Apache-2.0
#include "model/fold_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "model/fitted_scales.h"

namespace vireo {
namespace {

// A product of 64 outputs and 40 inputs whose maker is a norm: three groups, the last of 8.
class FoldSearch : public testing::Test {
 protected:
  FoldSearch() : weights_(kOut * kIn), norm_(kIn, to_bf16(1)) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (bf16& w : weights_) w = to_bf16(normal(random));
    task_.parts = {{"w", DType::kBF16, {kOut, kIn}, weights_.data()}};
    task_.maker = {.tensor = "n", .factors = kIn};
    for (int32_t i = 0; i < kIn; ++i) task_.maker.factor_of.push_back(i);
    task_.maker_weights = {"n", DType::kBF16, {kIn}, norm_.data()};
    task_.input_squares.assign(kIn, 1);
  }

  static constexpr int64_t kOut = 64, kIn = 40;
  std::vector<bf16> weights_, norm_;
  FoldTask task_;
};

TEST_F(FoldSearch, ALoudInputIsKeptBetter) {
  task_.input_squares[5] = 900;
  for (const Tier tier : {Tier::kW4, Tier::kInt4}) {
    task_.tier = tier;
    const FoundFold found = find_fold(task_);
    EXPECT_LT(found.error, 0.5 * found.plain_error);
    EXPECT_GT(found.exponents[5], found.exponents[4]);
  }
}

TEST_F(FoldSearch, IsNeverWorse) {
  for (const Tier tier : {Tier::kW4, Tier::kInt4}) {
    task_.tier = tier;
    const FoundFold found = find_fold(task_);
    EXPECT_LE(found.error, found.plain_error);
    EXPECT_GT(found.error, 0);
  }
}

TEST_F(FoldSearch, AgreesWithTheErrorOfTheProduct) {
  task_.input_squares[3] = 100;
  const FoundFold found = find_fold(task_);
  const Fold fold{{}, found.exponents};
  std::vector<float> importance;
  for (size_t c = 0; c < kIn; ++c)
    importance.push_back(static_cast<float>(std::ldexp(task_.input_squares[c], -2 * found.exponents[c])));
  double error = 0, product = 0;
  for (int64_t r = 0; r < kOut; ++r) {
    bf16 row[kIn];
    float rounded[kIn];
    uint8_t codes[kIn / 2];
    bf16 scales[3];
    fold_row(fold, 0, weights_.data() + r * kIn, kIn, row);
    quantize_row_fitted(task_.tier, row, importance.data(), kIn, codes, scales);
    dequantize_row(task_.tier, codes, scales, kIn, rounded);
    for (size_t c = 0; c < kIn; ++c) {
      const double w = to_float(weights_[static_cast<size_t>(r) * kIn + c]);
      const double d = std::ldexp(rounded[c], -found.exponents[c]) - w;
      error += task_.input_squares[c] * d * d;
      product += task_.input_squares[c] * w * w;
    }
  }
  EXPECT_NEAR(found.error, error / product, 1e-6 * found.error);
}

TEST_F(FoldSearch, InputsThatShareAFactorAreTakenTogether) {
  // Inputs 0 to 19 and 20 to 39 are two heads that read the same values.
  for (size_t i = 0; i < kIn; ++i) task_.maker.factor_of[i] = static_cast<int32_t>(i % 20);
  task_.maker.factors = 20;
  task_.maker_weights.shape = {20};
  task_.input_squares[3] = 400;
  const FoundFold found = find_fold(task_);
  ASSERT_EQ(found.exponents.size(), 20u);
  EXPECT_GT(found.exponents[3], found.exponents[4]);
  EXPECT_LT(found.error, found.plain_error);
}

TEST_F(FoldSearch, ExponentsHaveALimit) {
  for (size_t i = 0; i < kIn; ++i) task_.input_squares[i] = std::ldexp(1.0, i % 2 == 0 ? 60 : -60);
  const FoundFold found = find_fold(task_);
  for (const int8_t e : found.exponents) EXPECT_LE(std::abs(e), kMostExponent);
}

TEST_F(FoldSearch, WhatWouldNotBeExactIsLeftAlone) {
  for (double& s : task_.input_squares) s = 1;
  task_.input_squares[2] = task_.input_squares[9] = 400;
  weights_[kIn + 2] = to_bf16(1e-38f);
  norm_[9] = to_bf16(1e-38f);
  const FoundFold found = find_fold(task_);
  EXPECT_EQ(found.exponents[2], 0);
  EXPECT_EQ(found.exponents[9], 0);
}

TEST_F(FoldSearch, SilentInputsAndZerosAreNoTrouble) {
  std::fill(task_.input_squares.begin(), task_.input_squares.end(), 0);
  EXPECT_EQ(find_fold(task_).error, 0);
  std::fill(weights_.begin(), weights_.end(), to_bf16(0));
  task_.input_squares[0] = 1;
  EXPECT_EQ(find_fold(task_).error, 0);
}

}  // namespace
}  // namespace vireo
