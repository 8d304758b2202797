// Outlier folding: the input channels of a projection are made larger or smaller in its weights, so that a tier of 4 bits keeps those that
// matter, and what makes the input is divided by the same. All factors are powers of two, so that in BF16 nothing changes.
// Reference: activation-aware weight quantisation (AWQ, https://arxiv.org/abs/2306.00978), whose factors are not powers of two.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "model/projections.h"
#include "ops/tier.h"

namespace vireo {

// A factor is 2^e with e within +-kMostExponent. A weight may get two of them.
inline constexpr int kMostExponent = 8;

// What a tensor is multiplied by: element (r, c) by 2^(rows[r] + cols[c]), a vector being one row. Empty: 1.
struct Fold {
  std::vector<int8_t> rows, cols;
};
// By the tensor's name.
using Folds = std::unordered_map<std::string, Fold>;

// Whether outliers of projections in a tier are folded.
constexpr bool is_folded(Tier tier) {
  return tier == Tier::kW4 || tier == Tier::kInt4;
}

void fold_row(const Fold& fold, int64_t row, const bf16* from, int64_t cols, bf16* to);

// Whether a weight times any factors is exact in BF16.
bool may_be_folded(bf16 weight);

// What makes the input of a projection: a norm, or rows of another projection, for each of which there is one factor.
struct Maker {
  enum class Kind { kNorm, kRows };
  Kind kind = Kind::kNorm;
  std::string tensor;              // BF16, [factors] of a norm and [factors, cols] of rows
  int64_t factors = 0, cols = 0;   // cols of a norm: 0
  std::vector<int32_t> factor_of;  // of each input: query heads that share a value head share its factors
};
Maker maker_of(const Projection& projection, const TextConfig& config);

// Multiplies the projection's columns by 2^exponents[factor], and divides what makes its input.
void add_fold(const Projection& projection, const ModelConfig& config, const std::vector<int8_t>& exponents,
              Folds& folds);

}  // namespace vireo
