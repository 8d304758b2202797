// SPDX-License-Identifier: Apache-2.0
#include "model/fitted_scales.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/tier_codes.h"

namespace vireo {
namespace {

constexpr int kFirst = 10, kLast = 26, kUsual = 16;  // sixteenths of the usual scale that are tried
constexpr float kLeastFitted = 0x1p-100f;

// Filled up with zeros.
struct Group {
  float weights[kTierGroup] = {}, importance[kTierGroup] = {};
  int64_t count = 0;
};

template <typename Code>
double loss(const Group& group, float scale) {
  float losses[kTierGroup];
  for (int64_t c = 0; c < kTierGroup; ++c) {
    const float d = Code::nearest(group.weights[c] / scale) * scale - group.weights[c];
    losses[c] = group.importance[c] * (d * d);
  }
  double sum = 0;
  for (const float l : losses) sum += double{l};
  return sum;
}

// Puts codes and scale of the group where they belong and returns what is lost.
template <typename Code>
double fit(const Group& group, float largest, uint8_t* codes, bf16* scale) {
  const float usual = largest / Code::kMost;
  *scale = to_bf16(usual);
  double least = loss<Code>(group, to_float(*scale));
  for (int i = kFirst; i <= kLast; ++i) {
    const bf16 other = to_bf16(usual * static_cast<float>(i) / kUsual);
    const double lost = loss<Code>(group, to_float(other));
    if (!(lost < least)) continue;
    least = lost;
    *scale = other;
  }
  for (int64_t c = 0; c < group.count; ++c) {
    const uint8_t code = Code::code(group.weights[c] / to_float(*scale));
    codes[c / 2] = static_cast<uint8_t>(c % 2 == 0 ? code : codes[c / 2] | code << 4);
  }
  return least;
}

}  // namespace

double quantize_row_fitted(Tier tier, const bf16* row, const float* importance, int64_t cols, uint8_t* codes,
                           bf16* scales) {
  CHECK(tier == Tier::kW4 || tier == Tier::kInt4);
  double lost = 0;
  for (int64_t first = 0; first < cols; first += kTierGroup) {
    Group group;
    group.count = std::min(kTierGroup, cols - first);
    uint8_t* group_codes = codes + first / 2;
    bf16* scale = scales + first / kTierGroup;
    float largest = 0;
    bool plain = false;  // nothing to choose: too small for a scale, or not finite
    for (int64_t c = 0; c < group.count; ++c) {
      group.weights[c] = to_float(row[first + c]);
      group.importance[c] = importance[first + c];
      largest = std::max(largest, std::fabs(group.weights[c]));
      plain |= !std::isfinite(group.weights[c]);
    }
    if (plain || largest < kLeastFitted) {
      quantize_row(tier, row + first, group.count, group_codes, scale);
    } else {
      lost += tier == Tier::kW4 ? fit<E2m1>(group, largest, group_codes, scale)
                                : fit<Int4Codes>(group, largest, group_codes, scale);
    }
  }
  return lost;
}

}  // namespace vireo
