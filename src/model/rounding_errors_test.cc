// Errors are in proportion to the products, whatever was folded.
// SPDX-License-Identifier: Apache-2.0
#include "model/rounding_errors.h"

#include <gtest/gtest.h>

#include "model/test_inputs.h"

namespace vireo {
namespace {

constexpr int64_t kIn = 40, kRow = 1;

struct Matrix {
  Matrix() {
    std::mt19937 random(4);
    std::normal_distribution<float> normal;
    for (bf16& w : weights) w = to_bf16(normal(random));
  }
  bf16 weights[3 * kIn];
};

RoundingErrors errors(Tier tier, const Fold* fold) {
  const Matrix matrix;
  ThreadPool pool(1);
  const InputFactor factor(correlated_rows(300, kIn, 2), fold ? fold->cols : std::vector<int8_t>(), pool);
  const float scale = tensor_scale_of(tier, matrix.weights, 3 * kIn);
  return rounding_errors({tier, matrix.weights, fold, scale, scale}, factor, kRow);
}

TEST(RoundingErrors, AreLessWithACalibration) {
  for (const Tier tier : {Tier::kW8, Tier::kW4, Tier::kInt8, Tier::kInt4, Tier::kNvfp4}) {
    const RoundingErrors e = errors(tier, nullptr);
    EXPECT_GT(e.compensated, 0) << tier_name(tier);
    EXPECT_LT(e.compensated, 0.7 * e.plain) << tier_name(tier);
    EXPECT_LT(e.plain, 0.1 * e.products) << tier_name(tier);
  }
}

TEST(RoundingErrors, OfPlainWeightsDoNotDependOnFactorsOfAll) {
  const Fold fold{{1, 2, 3}, std::vector<int8_t>(kIn, 2)};
  const RoundingErrors folded = errors(Tier::kInt4, &fold), e = errors(Tier::kInt4, nullptr);
  EXPECT_NEAR(folded.plain / folded.products, e.plain / e.products, 1e-5 * e.plain / e.products);
  EXPECT_NEAR(folded.compensated / folded.products, e.compensated / e.products, 1e-5 * e.compensated / e.products);
}

TEST(RoundingErrors, AddUp) {
  const RoundingErrors sum = RoundingErrors{1, 2, 3} + RoundingErrors{10, 20, 30};
  EXPECT_EQ(sum.plain, 11);
  EXPECT_EQ(sum.compensated, 22);
  EXPECT_EQ(sum.products, 33);
}

}  // namespace
}  // namespace vireo
