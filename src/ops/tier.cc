// SPDX-License-Identifier: Apache-2.0
#include "ops/tier.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace vireo {
namespace {

constexpr float kE4m3Most = 448, kE2m1Most = 6;
constexpr float kE2m1[8] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};

// The magnitude that the largest weight of a group gets.
float most_of(Tier tier) {
  switch (tier) {
    case Tier::kW8:
      return kE4m3Most;
    case Tier::kW4:
    case Tier::kNvfp4:
      return kE2m1Most;
    case Tier::kInt8:
      return 127;
    case Tier::kInt4:
      return 7;
    default:
      break;
  }
  CHECK(false);
  return 0;
}

// To the nearest integer, ties to the even one, for magnitudes below 2^22: such sums have no bits behind the point.
float rounded(float value) {
  return (value + 0x1.8p23f) - 0x1.8p23f;
}

uint8_t to_integer(float value, float most) {
  return static_cast<uint8_t>(static_cast<int8_t>(rounded(std::clamp(value, -most, most))));
}

template <Tier kTier>
uint8_t to_code(float value) {
  switch (kTier) {
    case Tier::kW8:
      return to_e4m3(value);
    case Tier::kW4:
    case Tier::kNvfp4:
      return to_e2m1(value);
    case Tier::kInt8:
      return to_integer(value, 127);
    default:
      return to_integer(value, 7) & 15;
  }
}

float from_code(Tier tier, uint8_t code) {
  switch (tier) {
    case Tier::kW8:
      return from_e4m3(code);
    case Tier::kW4:
    case Tier::kNvfp4:
      return from_e2m1(code);
    case Tier::kInt8:
      return static_cast<int8_t>(code);
    default:
      return static_cast<float>(code < 8 ? code : code - 16);
  }
}

// What each code stands for.
struct Values {
  float of[256];

  explicit Values(Tier tier) {
    for (int code = 0; code < 256; ++code) of[code] = from_code(tier, static_cast<uint8_t>(code));
  }
};

const float* values_of(Tier tier) {
  static const Values w8(Tier::kW8), w4(Tier::kW4), int8(Tier::kInt8), int4(Tier::kInt4);
  switch (tier) {
    case Tier::kW8:
      return w8.of;
    case Tier::kW4:
    case Tier::kNvfp4:
      return w4.of;
    case Tier::kInt8:
      return int8.of;
    default:
      return int4.of;
  }
}

}  // namespace

const std::vector<std::string>& tier_names() {
  static const std::vector<std::string> names = {"bf16", "w8", "w4", "int8", "int4", "nvfp4"};
  return names;
}

const std::vector<std::string>& tier_projections() {
  static const std::vector<std::string> names = {"qkv_proj", "o_proj", "gate_up", "mlp_down", "lm_head"};
  return names;
}

const char* tier_name(Tier tier) {
  return tier_names()[static_cast<size_t>(tier)].c_str();
}

std::optional<Tier> find_tier(const std::string& name) {
  const auto& names = tier_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Tier>(found - names.begin());
}

double tier_bits(Tier tier) {
  if (tier == Tier::kBf16) return 16;
  return (has_nibbles(tier) ? 4 : 8) + 16.0 / kTierGroup;
}

uint8_t to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), m = bits & 0x7fffffff;
  const float magnitude = std::fabs(value), most = magnitude < kE4m3Most ? magnitude : kE4m3Most;
  // Below 2^-6 codes count 2^-9.
  const auto small = static_cast<int32_t>(rounded(most * 512));
  const auto normal = static_cast<int32_t>((m + 0x7ffff + (m >> 20 & 1)) >> 20) - (120 << 3);
  const int32_t code = most < 0x1p-6f ? small : normal, whole = magnitude < kE4m3Most ? code : 0x7e;
  return static_cast<uint8_t>(static_cast<uint32_t>(whole) | (bits >> 24 & 0x80));
}

float from_e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return NAN;
  const float magnitude = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                                        : std::ldexp(1 + static_cast<float>(mantissa) / 8, exponent - 7);
  return code & 0x80 ? -magnitude : magnitude;
}

uint8_t to_e2m1(float value) {
  const float a = std::fabs(value);
  // A tie goes to the even code: up or down in turns.
  const int code = (a > .25f) + (a >= .75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint8_t>(code | (std::signbit(value) ? 8 : 0));
}

float from_e2m1(uint8_t code) {
  return code & 8 ? -kE2m1[code & 7] : kE2m1[code & 7];
}

namespace {

// Bits of magnitudes are in the magnitudes' order, and of this type compilers make vectors.
int16_t magnitude_bits(bf16 v) {
  return static_cast<int16_t>(v.bits & 0x7fff);
}
constexpr int16_t kInfinityBits = 0x7f80;

// Codes of `count` weights, a byte each.
template <Tier kTier>
void to_codes(const bf16* weights, int64_t count, float scale, uint8_t* codes) {
  for (int64_t k = 0; k < count; ++k) {
    codes[k] = to_code<kTier>(scale > 0 ? to_float(weights[k]) / scale : 0.0f);
  }
}

template <Tier kTier>
void quantize_row_to(const bf16* row, int64_t cols, uint8_t* codes, bf16* scales, float tensor_scale) {
  const float most = most_of(kTier);
  for (int64_t first = 0; first < cols; first += kTierGroup) {
    const int64_t count = std::min(cols - first, kTierGroup);
    int16_t bits = 0;
    for (int64_t k = first; k < first + count; ++k) bits = std::max(bits, magnitude_bits(row[k]));
    const float wanted = to_float(bf16{static_cast<uint16_t>(bits)}) / most;
    const float stored = kTier == Tier::kNvfp4 ? from_e4m3(to_e4m3(wanted / tensor_scale)) * tensor_scale : wanted;
    const bf16 rounded = to_bf16(bits < kInfinityBits ? stored : std::numeric_limits<float>::quiet_NaN());
    const float scale = to_float(rounded);
    scales[first / kTierGroup] = rounded;
    uint8_t group[kTierGroup] = {};
    if (count == kTierGroup) {
      to_codes<kTier>(row + first, kTierGroup, scale, group);  // a count that compilers know: as vectors
    } else {
      to_codes<kTier>(row + first, count, scale, group);
    }
    if (!has_nibbles(kTier)) {
      std::copy_n(group, count, codes + first);
      continue;
    }
    for (int64_t k = 0; k < count; k += 2) {
      codes[(first + k) / 2] = static_cast<uint8_t>(group[k] | group[k + 1] << 4);
    }
  }
}

}  // namespace

void quantize_row(Tier tier, const bf16* row, int64_t cols, uint8_t* codes, bf16* scales, float tensor_scale) {
  switch (tier) {
    case Tier::kW8:
      return quantize_row_to<Tier::kW8>(row, cols, codes, scales, tensor_scale);
    case Tier::kW4:
      return quantize_row_to<Tier::kW4>(row, cols, codes, scales, tensor_scale);
    case Tier::kInt8:
      return quantize_row_to<Tier::kInt8>(row, cols, codes, scales, tensor_scale);
    case Tier::kInt4:
      return quantize_row_to<Tier::kInt4>(row, cols, codes, scales, tensor_scale);
    default:
      CHECK(tier == Tier::kNvfp4);
      return quantize_row_to<Tier::kNvfp4>(row, cols, codes, scales, tensor_scale);
  }
}

bf16 largest_magnitude(const bf16* values, int64_t count) {
  int16_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int16_t magnitude = magnitude_bits(values[i]);
    largest = std::max(largest, magnitude < kInfinityBits ? magnitude : int16_t{0});
  }
  return bf16{static_cast<uint16_t>(largest)};
}

float tensor_scale_of(Tier tier, bf16 largest) {
  if (tier != Tier::kNvfp4 || largest.bits == 0) return 1;
  int exponent = 0;
  const double fraction = std::frexp(double{to_float(largest)} / (kE2m1Most * kE4m3Most), &exponent);
  return std::ldexp(1.0f,
                    std::max(fraction == 0.5 ? exponent - 1 : exponent, std::numeric_limits<float>::min_exponent - 1));
}

float tensor_scale_of(Tier tier, const bf16* values, int64_t count) {
  return tier == Tier::kNvfp4 ? tensor_scale_of(tier, largest_magnitude(values, count)) : 1;
}

uint8_t narrow_scale(bf16 scale, float tensor_scale) {
  const float value = to_float(scale);
  return std::isnan(value) ? uint8_t{0x7f} : to_e4m3(value / tensor_scale);
}

void CodedMatrix::read_scales(int64_t row, int64_t groups, bf16* to) const {
  if (tier != Tier::kNvfp4) {
    std::copy_n(static_cast<const bf16*>(scales) + row * groups, groups, to);
    return;
  }
  const uint8_t* from = static_cast<const uint8_t*>(scales) + row * groups;
  for (int64_t g = 0; g < groups; ++g) to[g] = to_bf16(from_e4m3(from[g]) * tensor_scale);
}

CodedMatrix CodedMatrix::from_row(int64_t first, int64_t in) const {
  const size_t scale_bytes = tier == Tier::kNvfp4 ? 1 : sizeof(bf16);
  const auto* bytes = static_cast<const uint8_t*>(scales);
  return {tier, codes + first * code_bytes(tier, in),
          bytes + static_cast<size_t>(first * tier_groups(in)) * scale_bytes, tensor_scale};
}

bf16 quantize_kv(const float* row, int64_t n, int8_t* codes) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::fabs(row[i]));
    finite &= std::isfinite(row[i]);
  }
  const bf16 narrow = to_bf16(finite ? largest / 127 : std::numeric_limits<float>::quiet_NaN());
  const float scale = to_float(narrow);
  for (int64_t i = 0; i < n; ++i) {
    codes[i] = scale > 0 ? static_cast<int8_t>(to_integer(row[i] / scale, 127)) : int8_t{0};
  }
  return narrow;
}

void dequantize_row(Tier tier, const uint8_t* codes, const bf16* scales, int64_t cols, float* row) {
  const float* values = values_of(tier);
  const bool nibbles = has_nibbles(tier);
  for (int64_t first = 0; first < cols; first += kTierGroup) {
    const int64_t end = std::min(cols, first + kTierGroup);
    const float scale = to_float(scales[first / kTierGroup]);
    for (int64_t k = first; k < end; ++k) {
      const uint8_t code = nibbles ? codes[k / 2] >> (k % 2 * 4) & 15 : codes[k];
      row[k] = values[code] * scale;
    }
  }
}

Tier TierPlan::of(int layer, const std::string& projection) const {
  const auto& projections = tier_projections();
  if (std::find(projections.begin(), projections.end(), projection) == projections.end()) return Tier::kBf16;
  std::string key = "L";
  key += std::to_string(layer);
  key += ".";
  key += projection;
  for (const std::string& k : {key, projection}) {
    if (const auto found = overrides_.find(k); found != overrides_.end()) return found->second;
  }
  return global_;
}

void round_to_tier(Tier tier, const bf16* row, int64_t cols, float* rounded, float tensor_scale) {
  std::vector<uint8_t> codes(static_cast<size_t>(code_bytes(tier, cols)));
  std::vector<bf16> scales(static_cast<size_t>(tier_groups(cols)));
  quantize_row(tier, row, cols, codes.data(), scales.data(), tensor_scale);
  dequantize_row(tier, codes.data(), scales.data(), cols, rounded);
}

}  // namespace vireo
