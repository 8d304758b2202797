// Rows in a tier of which each weight's rounding makes up for the errors of those before it, as far as the inputs go together.
// References: GPTQ (https://arxiv.org/abs/2210.17323), in the form of LDLQ (QuIP, https://arxiv.org/abs/2307.13304).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "model/input_factor.h"
#include "ops/tier.h"

namespace vireo {

class CompensatedRounding {
 public:
  // tensor_scale as of quantize_row. The factor must outlive this.
  CompensatedRounding(Tier tier, const InputFactor& factor, float tensor_scale = 1)
      : tier_(tier), factor_(factor), tensor_scale_(tensor_scale) {}

  // As quantize_row for each row, but the scale of a group is the one of several with which least is lost when each weight is rounded after
  // the errors of all before it were taken off, those of its group included. Returns the errors' squares in the product, by the factor.
  // For several threads at once.
  double quantize(const bf16* rows, int64_t count, uint8_t* codes, bf16* scales) const;

 private:
  Tier tier_;
  const InputFactor& factor_;
  float tensor_scale_;
};

// e H e^T summed over `count` rows of errors e, [count, inputs].
double product_squares(const InputFactor& factor, const float* errors, int64_t count);

}  // namespace vireo
