// Rows in a tier of 4 bits whose scales are chosen by what the codes lose, where it is known how much each input matters.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/tier.h"

namespace vireo {

// As quantize_row, for kW4 and kInt4, but the scale of a group is the one of several, 5/8 to 13/8 of the usual one, with which the sum over its
// weights of importance[c] * (error of the weight)^2 is least. Returns that sum over the row.
double quantize_row_fitted(Tier tier, const bf16* row, const float* importance, int64_t cols, uint8_t* codes,
                           bf16* scales);

}  // namespace vireo
