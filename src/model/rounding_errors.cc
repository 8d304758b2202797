// SPDX-License-Identifier: Apache-2.0
#include "model/rounding_errors.h"

#include <cmath>
#include <vector>

namespace vireo {
namespace {

std::vector<bf16> folded(const RoundedMatrix& m, const bf16* from, int64_t row, int64_t cols) {
  std::vector<bf16> to(from, from + cols);
  if (m.fold) fold_row(*m.fold, row, from, cols, to.data());
  return to;
}

// In the unit of the folded weights.
double plain_squares(const RoundedMatrix& m, const InputFactor& factor, int64_t row) {
  const bf16* weights = m.rows + row * factor.inputs();
  std::vector<float> errors(static_cast<size_t>(factor.inputs()));
  round_to_tier(m.tier, weights, factor.inputs(), errors.data(), m.plain_tensor_scale);
  for (size_t c = 0; c < errors.size(); ++c) {
    const int of_row = m.fold && !m.fold->rows.empty() ? m.fold->rows[static_cast<size_t>(row)] : 0;
    const int of_col = m.fold && !m.fold->cols.empty() ? m.fold->cols[c] : 0;
    errors[c] = std::ldexp(errors[c] - to_float(weights[c]), of_row + of_col);
  }
  return product_squares(factor, errors.data(), 1);
}

}  // namespace

RoundingErrors rounding_errors(const RoundedMatrix& m, const InputFactor& factor, int64_t row) {
  const std::vector<bf16> weights = folded(m, m.rows + row * factor.inputs(), row, factor.inputs());
  std::vector<float> wide(weights.size());
  for (size_t c = 0; c < wide.size(); ++c) wide[c] = to_float(weights[c]);
  std::vector<uint8_t> codes(static_cast<size_t>(code_bytes(m.tier, factor.inputs())));
  std::vector<bf16> scales(static_cast<size_t>(factor.groups()));
  const CompensatedRounding rounding(m.tier, factor, m.tensor_scale);
  return {.plain = plain_squares(m, factor, row),
          .compensated = rounding.quantize(weights.data(), 1, codes.data(), scales.data()),
          .products = product_squares(factor, wide.data(), 1)};
}

}  // namespace vireo
