// SPDX-License-Identifier: Apache-2.0
#include "model/input_factor.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/vector_clones.h"

namespace vireo {
namespace {

constexpr int64_t kBlock = kTierGroup * kTierGroup;
constexpr int64_t kRowsPerItem = 256;  // of a panel, made at once by a thread
constexpr double kDamping = 0.1;       // of the mean of the diagonal

int64_t rounded_up(int64_t n) {
  return tier_groups(n) * kTierGroup;
}

}  // namespace

VIREO_VECTOR_CLONES void add_product(const float* a, int64_t stride, const float* b, int64_t rows, double* sums) {
  for (int64_t r = 0; r < rows; ++r) {
    float row[kTierGroup] = {};
    // Or else GCC 12 keeps the sums in memory: 1.2 instead of 13.6 billion products a second (AVX2, one thread, 2026-12-01).
#pragma GCC unroll 16
    for (int64_t d = 0; d < kTierGroup; ++d) {
      for (int64_t c = 0; c < kTierGroup; ++c) row[c] += a[r * stride + d] * b[d * kTierGroup + c];
    }
    for (int64_t c = 0; c < kTierGroup; ++c) sums[r * kTierGroup + c] += double{row[c]};
  }
}

// Panel after panel from the last to the first: what is left of H's columns after those of later panels are taken off gives D, and over
// D it is U.
class InputFactor::Maker {
 public:
  Maker(InputFactor& factor, const InputRows& rows, const std::vector<int8_t>& exponents, ThreadPool& pool)
      : factor_(factor), pool_(pool), stride_(rounded_up(rows.rows)) {
    transpose(rows, exponents);
  }

  void make() {
    for (int64_t group = factor_.groups() - 1; group >= 0; --group) make_panel(group);
  }

 private:
  // Scaled so that the sums of products have a diagonal whose mean is 1.
  void transpose(const InputRows& rows, const std::vector<int8_t>& exponents) {
    inputs_.resize(static_cast<size_t>(factor_.groups() * kTierGroup * stride_));
    double squares = 0;
    for (int64_t r = 0; r < rows.rows; ++r) {
      for (int64_t c = 0; c < rows.cols; ++c) {
        const float value = to_float(rows.values[static_cast<size_t>(r * rows.cols + c)]);
        const float scaled = exponents.empty() ? value : std::ldexp(value, -exponents[static_cast<size_t>(c)]);
        inputs_[static_cast<size_t>(c * stride_ + r)] = scaled;
        squares += double{scaled} * scaled;
      }
    }
    const double mean = squares / static_cast<double>(rows.cols);
    const auto unit = static_cast<float>(mean > 0 ? 1 / std::sqrt(mean) : 0);
    for (float& value : inputs_) value *= unit;
  }

  void make_panel(int64_t group) {
    const std::vector<float> right = right_sides(group);
    factor_.panels_[static_cast<size_t>(group)].resize(static_cast<size_t>((group + 1) * kBlock));
    make_diagonal(group, right);
    const int64_t rows = group * kTierGroup;
    pool_.run((rows + kRowsPerItem - 1) / kRowsPerItem, [&](int64_t item, int) {
      const int64_t first = item * kRowsPerItem;
      make_rows(group, first, std::min(kRowsPerItem, rows - first), right);
    });
  }

  // By what rows of the inputs and of later panels are multiplied, block after block, to have what is left of the group's columns.
  std::vector<float> right_sides(int64_t group) const {
    std::vector<float> blocks;
    for (int64_t r = 0; r < stride_; ++r) {
      for (int64_t c = 0; c < kTierGroup; ++c)
        blocks.push_back(inputs_[static_cast<size_t>((group * kTierGroup + c) * stride_ + r)]);
    }
    for (int64_t later = group + 1; later < factor_.groups(); ++later) {
      const float *u = factor_.block(group, later), *d = factor_.variances(later);
      for (int64_t r = 0; r < kTierGroup; ++r) {
        for (int64_t c = 0; c < kTierGroup; ++c) blocks.push_back(-d[r] * u[c * kTierGroup + r]);
      }
    }
    return blocks;
  }

  // Of H's rows [first, first + count) in the group's columns.
  std::vector<double> remainder(int64_t group, int64_t first, int64_t count, const std::vector<float>& right) const {
    std::vector<double> left(static_cast<size_t>(count * kTierGroup));
    const float* b = right.data();
    for (int64_t r = 0; r < stride_; r += kTierGroup, b += kBlock)
      add_product(inputs_.data() + first * stride_ + r, stride_, b, count, left.data());
    for (int64_t later = group + 1; later < factor_.groups(); ++later, b += kBlock)
      add_product(factor_.block(0, later) + first * kTierGroup, kTierGroup, b, count, left.data());
    return left;
  }

  void make_diagonal(int64_t group, const std::vector<float>& right) {
    const std::vector<double> left = remainder(group, group * kTierGroup, kTierGroup, right);
    float* u = row_of(group, group * kTierGroup);
    float* d = factor_.variances_.data() + group * kTierGroup;
    for (int64_t c = kTierGroup - 1; c >= 0; --c) {
      const float* row = u + c * kTierGroup;
      const double variance = left[static_cast<size_t>(c * kTierGroup + c)] - behind(row, row, d, c);
      d[c] = static_cast<float>(kDamping + std::max(0.0, variance));  // below 0: by rounding
      u[c * kTierGroup + c] = 1;
      for (int64_t r = 0; r < c; ++r) {
        float* other = u + r * kTierGroup;
        other[c] =
            static_cast<float>((left[static_cast<size_t>(r * kTierGroup + c)] - behind(other, row, d, c)) / d[c]);
      }
    }
  }

  void make_rows(int64_t group, int64_t first, int64_t count, const std::vector<float>& right) {
    const std::vector<double> left = remainder(group, first, count, right);
    const float* u = row_of(group, group * kTierGroup);
    const float* d = factor_.variances(group);
    for (int64_t r = 0; r < count; ++r) {
      float* row = row_of(group, first + r);
      for (int64_t c = kTierGroup - 1; c >= 0; --c) {
        const double rest = left[static_cast<size_t>(r * kTierGroup + c)] - behind(row, u + c * kTierGroup, d, c);
        row[c] = static_cast<float>(rest / d[c]);
      }
    }
  }

  // What the columns behind c of a group have in the product of two rows.
  static double behind(const float* a, const float* b, const float* d, int64_t c) {
    double sum = 0;
    for (int64_t k = c + 1; k < kTierGroup; ++k) sum += double{a[k]} * d[k] * b[k];
    return sum;
  }

  float* row_of(int64_t group, int64_t row) {
    return factor_.panels_[static_cast<size_t>(group)].data() + row * kTierGroup;
  }

  InputFactor& factor_;
  ThreadPool& pool_;
  const int64_t stride_;       // rows, filled up to whole blocks
  std::vector<float> inputs_;  // [columns, stride_]
};

InputFactor::InputFactor(const InputRows& rows, const std::vector<int8_t>& exponents, ThreadPool& pool)
    : inputs_(rows.cols),
      panels_(static_cast<size_t>(tier_groups(rows.cols))),
      variances_(static_cast<size_t>(rounded_up(rows.cols))) {
  CHECK(static_cast<int64_t>(rows.values.size()) == rows.rows * rows.cols);
  Maker(*this, rows, exponents, pool).make();
}

}  // namespace vireo
