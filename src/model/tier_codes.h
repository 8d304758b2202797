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
struct E2m1 {
  static constexpr float kMost = 6;
  static float nearest(float value) {
    const float magnitude = std::fabs(value);
    const float step = magnitude < 2   ? .5f
                       : magnitude < 4 ? 1.f
                                       : 2.f,
                steps = magnitude < 2   ? 2.f
                        : magnitude < 4 ? 1.f
                                        : .5f;
    return std::copysign(std::min(kMost, to_nearest_integer(magnitude * steps) * step), value);
  }
  static uint8_t code(float value) { return to_e2m1(value); }
};

struct E4m3 {
  static constexpr float kMost = 448;
  static float nearest(float value) {
    const float magnitude = std::min(kMost, std::fabs(value));
    const auto bits = std::bit_cast<uint32_t>(magnitude);
    const float normal = std::bit_cast<float>((bits + 0x7ffff + (bits >> 20 & 1)) & 0xfff00000);
    const float small = to_nearest_integer(magnitude * 0x1p9f) * 0x1p-9f;
    return std::copysign(magnitude < 0x1p-6f ? small : normal, value);
  }
  static uint8_t code(float value) { return to_e4m3(value); }
};

template <int kLargest, int kMask>
struct IntegerCodes {
  static constexpr float kMost = kLargest;
  static float nearest(float value) { return to_nearest_integer(std::clamp(value, -kMost, kMost)); }
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
