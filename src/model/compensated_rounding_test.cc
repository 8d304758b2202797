// Compensated rounding loses less of products with inputs that go together than rounding each weight for itself, and says how much.
// SPDX-License-Identifier: Apache-2.0
#include "model/compensated_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "model/fitted_scales.h"
#include "model/test_inputs.h"

namespace vireo {
namespace {

constexpr Tier kTiers[] = {Tier::kW8, Tier::kW4, Tier::kInt8, Tier::kInt4, Tier::kNvfp4};
constexpr int64_t kOut = 70;  // more than are rounded at once

struct Coded {
  Coded(Tier t, int64_t in)
      : tier(t),
        cols(in),
        codes(static_cast<size_t>(kOut * code_bytes(tier, cols))),
        scales(static_cast<size_t>(kOut * tier_groups(cols))) {}

  uint8_t* codes_of(int64_t row) { return codes.data() + row * code_bytes(tier, cols); }
  bf16* scales_of(int64_t row) { return scales.data() + row * tier_groups(cols); }

  // Less the rows: what the codes stand for.
  std::vector<float> errors(const std::vector<bf16>& rows) {
    std::vector<float> values(static_cast<size_t>(kOut * cols));
    for (int64_t r = 0; r < kOut; ++r) dequantize_row(tier, codes_of(r), scales_of(r), cols, values.data() + r * cols);
    for (size_t i = 0; i < values.size(); ++i) values[i] -= to_float(rows[i]);
    return values;
  }

  Tier tier;
  int64_t cols;
  std::vector<uint8_t> codes;
  std::vector<bf16> scales;
};

std::vector<bf16> weights(int64_t cols, uint32_t seed = 8) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<bf16> made(static_cast<size_t>(kOut * cols));
  for (bf16& w : made) w = to_bf16(normal(random));
  return made;
}

// Squares of the errors times the inputs.
double lost(const std::vector<float>& errors, const InputRows& inputs) {
  double sum = 0;
  for (int64_t o = 0; o < kOut; ++o) {
    for (int64_t r = 0; r < inputs.rows; ++r) {
      double product = 0;
      for (int64_t c = 0; c < inputs.cols; ++c)
        product += double{errors[static_cast<size_t>(o * inputs.cols + c)]} *
                   to_float(inputs.values[static_cast<size_t>(r * inputs.cols + c)]);
      sum += product * product;
    }
  }
  return sum;
}

Coded each_for_itself(Tier tier, const std::vector<bf16>& rows, const InputRows& inputs) {
  Coded coded(tier, inputs.cols);
  std::vector<float> importance(static_cast<size_t>(inputs.cols));
  for (size_t i = 0; i < inputs.values.size(); ++i) {
    const float v = to_float(inputs.values[i]);
    importance[i % importance.size()] += v * v;
  }
  const float tensor_scale = tensor_scale_of(tier, rows.data(), static_cast<int64_t>(rows.size()));
  for (int64_t r = 0; r < kOut; ++r) {
    const bf16* row = rows.data() + r * inputs.cols;
    if (tier == Tier::kW4 || tier == Tier::kInt4) {
      quantize_row_fitted(tier, row, importance.data(), inputs.cols, coded.codes_of(r), coded.scales_of(r));
    } else {
      quantize_row(tier, row, inputs.cols, coded.codes_of(r), coded.scales_of(r), tensor_scale);
    }
  }
  return coded;
}

struct Result {
  Coded coded;
  double told;
};

Result compensated(Tier tier, const std::vector<bf16>& rows, const InputFactor& factor) {
  Result result{Coded(tier, factor.inputs()), 0};
  const float tensor_scale = tensor_scale_of(tier, rows.data(), static_cast<int64_t>(rows.size()));
  result.told = CompensatedRounding(tier, factor, tensor_scale)
                    .quantize(rows.data(), kOut, result.coded.codes.data(), result.coded.scales.data());
  return result;
}

// Of products with other inputs.
struct Losses {
  double compensated, each_for_itself;
};

Losses losses(Tier tier, const InputRows& inputs, const InputRows& others) {
  ThreadPool pool(2);
  const InputFactor factor(inputs, {}, pool);
  const std::vector<bf16> rows = weights(inputs.cols);
  Result result = compensated(tier, rows, factor);
  const std::vector<float> errors = result.coded.errors(rows);
  EXPECT_NEAR(result.told, product_squares(factor, errors.data(), kOut), 1e-3 * result.told) << tier_name(tier);
  Coded plain = each_for_itself(tier, rows, inputs);
  return {lost(errors, others), lost(plain.errors(rows), others)};
}

void expect_less(double share, Tier tier, const InputRows& inputs, const InputRows& others) {
  const Losses l = losses(tier, inputs, others);
  EXPECT_LE(l.compensated, share * l.each_for_itself) << tier_name(tier) << " " << inputs.cols;
}

TEST(CompensatedRounding, LosesLessOfProductsWithInputsThatGoTogether) {
  for (const Tier tier : kTiers) {
    for (const int64_t cols : {64, 39, 200})
      expect_less(0.6, tier, correlated_rows(500, cols, 1), correlated_rows(300, cols, 2));
  }
}

TEST(CompensatedRounding, LosesNoMoreWhereTheyDoNot) {
  InputRows inputs{4000, 48, {}};
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < inputs.rows * inputs.cols; ++i) inputs.values.push_back(to_bf16(normal(random)));
  for (const Tier tier : kTiers) expect_less(1.01, tier, inputs, inputs);
}

TEST(CompensatedRounding, TakesOneColumnSilentInputsAndFewRows) {
  for (const Tier tier : kTiers) {
    expect_less(1, tier, correlated_rows(50, 1, 1), correlated_rows(50, 1, 2));
    expect_less(0.7, tier, correlated_rows(500, 50, 1, 3), correlated_rows(300, 50, 2, 3));
    expect_less(0.7, tier, correlated_rows(40, 90, 1), correlated_rows(40, 90, 1));
  }
}

TEST(CompensatedRounding, WithoutInputsWeightsStayNear) {
  ThreadPool pool(1);
  const std::vector<bf16> rows = weights(20);
  for (const InputRows& inputs : {correlated_rows(10, 20, 1, 1), correlated_rows(0, 20, 1)}) {
    const InputFactor factor(inputs, {}, pool);
    for (const Tier tier : kTiers) {
      Coded coded = compensated(tier, rows, factor).coded;
      for (const float e : coded.errors(rows)) EXPECT_LT(std::fabs(e), 0.6) << tier_name(tier);
    }
  }
}

TEST(CompensatedRounding, ScalesOfNvfp4AreThoseOfTheFormat) {
  ThreadPool pool(1);
  const InputFactor factor(correlated_rows(100, 40, 1), {}, pool);
  std::vector<bf16> rows = weights(40);
  for (size_t i = 0; i < 40; ++i) rows[i] = to_bf16(to_float(rows[i]) * 1e-5f);
  const float tensor_scale = tensor_scale_of(Tier::kNvfp4, rows.data(), static_cast<int64_t>(rows.size()));
  for (const bf16 scale : compensated(Tier::kNvfp4, rows, factor).coded.scales) {
    EXPECT_EQ(from_e4m3(narrow_scale(scale, tensor_scale)) * tensor_scale, to_float(scale));
    EXPECT_GT(to_float(scale), 0);
  }
}

TEST(CompensatedRounding, WhatIsNotFiniteShowsAndStaysInItsGroup) {
  ThreadPool pool(1);
  const InputFactor factor(correlated_rows(100, 40, 1), {}, pool);
  for (const float first : {INFINITY, NAN}) {
    std::vector<bf16> rows = weights(40);
    rows[17] = to_bf16(first);
    for (const Tier tier : kTiers) {
      Coded coded = compensated(tier, rows, factor).coded;
      for (size_t g = 0; g < coded.scales.size(); ++g)
        EXPECT_EQ(std::isfinite(to_float(coded.scales[g])), g != 1) << tier_name(tier) << " " << g;
    }
  }
}

TEST(CompensatedRounding, ZerosStayZeros) {
  ThreadPool pool(1);
  const InputFactor factor(correlated_rows(100, 40, 1), {}, pool);
  const std::vector<bf16> rows(static_cast<size_t>(kOut * 40), to_bf16(0));
  for (const Tier tier : kTiers) {
    Coded coded = compensated(tier, rows, factor).coded;
    for (const float e : coded.errors(rows)) EXPECT_EQ(e, 0);
  }
}

}  // namespace
}  // namespace vireo
