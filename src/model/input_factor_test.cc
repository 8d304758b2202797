// The factor stands for the second moments, whatever their sizes and rank.
// SPDX-License-Identifier: Apache-2.0
#include "model/input_factor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/test_inputs.h"

namespace vireo {
namespace {

constexpr double kDamping = 0.1;

// [padded columns, the same], row after row.
struct Matrix {
  explicit Matrix(int64_t n) : size(n), values(static_cast<size_t>(n * n)) {}
  double& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * size + c)]; }
  int64_t size;
  std::vector<double> values;
};

Matrix product(const InputFactor& f) {
  const int64_t n = f.groups() * kTierGroup;
  Matrix u(n), h(n);
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = r / kTierGroup * kTierGroup; c < n; ++c)
      u.at(r, c) = f.block(r / kTierGroup, c / kTierGroup)[r % kTierGroup * kTierGroup + c % kTierGroup];
  }
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      for (int64_t k = 0; k < n; ++k)
        h.at(r, c) += u.at(r, k) * f.variances(k / kTierGroup)[k % kTierGroup] * u.at(c, k);
    }
  }
  return h;
}

// In the unit of the mean of its diagonal, damped.
Matrix moments(const InputRows& rows, const std::vector<int8_t>& exponents) {
  Matrix h(tier_groups(rows.cols) * kTierGroup);
  const auto value = [&](int64_t r, int64_t c) {
    const double v = to_float(rows.values[static_cast<size_t>(r * rows.cols + c)]);
    return exponents.empty() ? v : std::ldexp(v, -exponents[static_cast<size_t>(c)]);
  };
  double trace = 0;
  for (int64_t a = 0; a < rows.cols; ++a) {
    for (int64_t b = 0; b < rows.cols; ++b) {
      for (int64_t r = 0; r < rows.rows; ++r) h.at(a, b) += value(r, a) * value(r, b);
    }
    trace += h.at(a, a);
  }
  if (trace > 0) {
    for (double& v : h.values) v *= static_cast<double>(rows.cols) / trace;
  }
  for (int64_t a = 0; a < h.size; ++a) h.at(a, a) += kDamping;
  return h;
}

void expect_factor(const InputRows& rows, const std::vector<int8_t>& exponents = {}) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const InputFactor factor(rows, exponents, pool);
    ASSERT_EQ(factor.inputs(), rows.cols);
    Matrix got = product(factor), want = moments(rows, exponents);
    ASSERT_EQ(got.size, want.size);
    for (size_t i = 0; i < got.values.size(); ++i) ASSERT_NEAR(got.values[i], want.values[i], 2e-5) << i;
    for (int64_t g = 0; g < factor.groups(); ++g) {
      for (int64_t c = 0; c < kTierGroup; ++c) {
        EXPECT_GE(factor.variances(g)[c], static_cast<float>(kDamping));
        EXPECT_EQ(factor.block(g, g)[c * kTierGroup + c], 1);
        for (int64_t before = 0; before < c; ++before) EXPECT_EQ(factor.block(g, g)[c * kTierGroup + before], 0);
      }
    }
  }
}

TEST(InputFactor, StandsForTheSecondMoments) {
  for (const int64_t cols : {1, 15, 16, 17, 39, 64, 300}) expect_factor(correlated_rows(700, cols, 1));
}

TEST(InputFactor, RowsMayBeFewerThanColumns) {
  for (const int64_t rows : {0, 1, 5, 33}) expect_factor(correlated_rows(rows, 70, 2));
}

TEST(InputFactor, InputsMayBeSilent) {
  expect_factor(correlated_rows(100, 50, 3, 3));
  expect_factor(correlated_rows(100, 20, 3, 1));
}

TEST(InputFactor, LoudInputsAreNoTrouble) {
  InputRows rows = correlated_rows(200, 48, 4);
  for (size_t i = 0; i < rows.values.size(); i += 48) rows.values[i] = to_bf16(to_float(rows.values[i]) * 0x1p40f);
  expect_factor(rows);
  for (bf16& v : rows.values) v = to_bf16(to_float(v) * 0x1p50f);
  expect_factor(rows);
}

TEST(InputFactor, InputsAreTakenByTheirFactors) {
  std::vector<int8_t> exponents;
  for (int c = 0; c < 37; ++c) exponents.push_back(static_cast<int8_t>(c % 7 - 3));
  expect_factor(correlated_rows(300, 37, 5), exponents);
}

}  // namespace
}  // namespace vireo
