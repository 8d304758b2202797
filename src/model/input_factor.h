// How the inputs of a projection vary together, in the form in which rounding one weight after the other needs it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "ops/tier.h"

namespace vireo {

// What a projection has read: `rows` rows of `cols` inputs.
struct InputRows {
  int64_t rows = 0, cols = 0;
  std::vector<bf16> values;
};

// The second moments of inputs, H = mean of x^T x, as U D U^T: U is upper triangular with ones on its diagonal, D diagonal. So for the errors e
// of a row of weights, e H e^T is the sum over the inputs k of D[k] (e U)[k]^2, of which the k-th does not depend on later errors.
// To the diagonal of H a tenth of its mean is added, because the rows are only a sample; its unit is that mean. Columns are in groups of
// kTierGroup, the last one filled up with inputs that are zero.
class InputFactor {
 public:
  // Input c counts as 2^-exponents[c] times what the rows have; no exponents: as it is. Takes 2 cols^2 bytes, and while it is made
  // 4 rows x cols.
  InputFactor(const InputRows& rows, const std::vector<int8_t>& exponents, ThreadPool& pool);

  int64_t inputs() const { return inputs_; }
  int64_t groups() const { return static_cast<int64_t>(panels_.size()); }
  // U's [kTierGroup, kTierGroup] at a group of rows and one of columns, which is not before it. Below the diagonal 0.
  const float* block(int64_t row_group, int64_t col_group) const {
    return panels_[static_cast<size_t>(col_group)].data() + row_group * kTierGroup * kTierGroup;
  }
  // D of a group.
  const float* variances(int64_t group) const { return variances_.data() + group * kTierGroup; }

 private:
  class Maker;

  int64_t inputs_;
  std::vector<std::vector<float>> panels_;  // by group of columns: [the rows down to its diagonal, kTierGroup]
  std::vector<float> variances_;
};

// sums [rows, kTierGroup] += a [rows, kTierGroup] b [kTierGroup, kTierGroup]. Rows of a are `stride` apart.
void add_product(const float* a, int64_t stride, const float* b, int64_t rows, double* sums);

}  // namespace vireo
