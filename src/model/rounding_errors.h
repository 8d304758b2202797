// What a tier loses of a projection's products, without a calibration and with it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/compensated_rounding.h"
#include "model/folding.h"

namespace vireo {

// Squares of the errors of products, and of the products themselves.
struct RoundingErrors {
  double plain = 0, compensated = 0, products = 0;

  RoundingErrors operator+(const RoundingErrors& other) const {
    return {plain + other.plain, compensated + other.compensated, products + other.products};
  }
};

// A matrix of which rows are rounded. Tensor scales: that of quantize_row, and of the folded matrix.
struct RoundedMatrix {
  Tier tier = Tier::kW4;
  const bf16* rows = nullptr;  // not folded
  const Fold* fold = nullptr;  // null: it is not
  float plain_tensor_scale = 1, tensor_scale = 1;
};

RoundingErrors rounding_errors(const RoundedMatrix& matrix, const InputFactor& factor, int64_t row);

}  // namespace vireo
