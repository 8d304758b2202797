// The codes of tiers in arithmetic that compilers make vectors of, for searches that round each weight many times.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "ops/tier.h"

namespace vireo {

// To the nearest integer, ties to even, for magnitudes below 2^22.
inline float to_nearest_integer(float value) {
  return (value + 0x1.8p23f) - 0x1.8p23f;
}

// nearest() is what the code of a value stands for, at most kMost, and code() its code.

// With kBits behind the first one; below 2^kLeastNormal steps are even.
template <int kBits, int kLeastNormal>
float to_nearest_float(float magnitude) {
  constexpr int kDropped = 23 - kBits;
  constexpr float kSteps = 1 << (kBits - kLeastNormal);
  const auto bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t up = (1u << (kDropped - 1)) - 1 + (bits >> kDropped & 1);
  const float normal = std::bit_cast<float>((bits + up) & ~0u << kDropped);
  const float small = to_nearest_integer(magnitude * kSteps) / kSteps;
  return magnitude * kSteps < 1 << kBits ? small : normal;
}

struct E2m1 {
  static constexpr float kMost = 6;
  static float nearest(float value) {
    return std::copysign(to_nearest_float<1, 0>(std::min(kMost, std::fabs(value))), value);
  }
  static uint8_t code(float value) { return to_e2m1(value); }
};

struct E4m3 {
  static constexpr float kMost = 448;
  static float nearest(float value) {
    return std::copysign(to_nearest_float<3, -6>(std::min(kMost, std::fabs(value))), value);
  }
  static uint8_t code(float value) { return to_e4m3(value); }
};

template <int kLargest, int kMask>
struct IntegerCodes {
  static constexpr float kMost = kLargest;
  static float nearest(float value) { return to_nearest_integer(std::max(-kMost, std::min(kMost, value))); }
  static uint8_t code(float value) { return static_cast<uint8_t>(static_cast<int8_t>(nearest(value))) & kMask; }
};
using Int8Codes = IntegerCodes<127, 0xff>;
using Int4Codes = IntegerCodes<7, 0xf>;

// Calls work with the codes of a tier.
template <typename Work>
auto with_codes_of(Tier tier, Work work) {
  switch (tier) {
    case Tier::kW8:
      return work(E4m3{});
    case Tier::kInt8:
      return work(Int8Codes{});
    case Tier::kInt4:
      return work(Int4Codes{});
    default:
      CHECK(tier == Tier::kW4 || tier == Tier::kNvfp4);
      return work(E2m1{});
  }
}

}  // namespace vireo
