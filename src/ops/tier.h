// Weight tiers: how rows of a matrix are stored for decode steps, in groups of 16 along a row with one scale each, and the conversions.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"

namespace vireo {

// kW8: e4m3; kW4: e2m1; kInt8 and kInt4: symmetric; all with bf16 scales. kNvfp4: e2m1, whose scales are e4m3 times one number per tensor.
enum class Tier : uint8_t { kBf16, kW8, kW4, kInt8, kInt4, kNvfp4 };

const char* tier_name(Tier tier);
// All names, in the order of the enum.
const std::vector<std::string>& tier_names();
std::optional<Tier> find_tier(const std::string& name);

inline constexpr int64_t kTierGroup = 16;
inline int64_t tier_groups(int64_t cols) {
  return (cols + kTierGroup - 1) / kTierGroup;
}
// Bits of one weight in memory, its share of the scale, a bf16, included.
double tier_bits(Tier tier);
constexpr bool has_nibbles(Tier tier) {
  return tier == Tier::kW4 || tier == Tier::kInt4 || tier == Tier::kNvfp4;
}
// Bytes of a row's codes: one a weight, or two weights in one, the even one low.
inline int64_t code_bytes(Tier tier, int64_t cols) {
  return has_nibbles(tier) ? (cols + 1) / 2 : cols;
}

// To nearest, ties to the even code, beyond the largest finite value to that. e4m3 has no infinities; its NaN is never made.
uint8_t to_e4m3(float value);
float from_e4m3(uint8_t code);
uint8_t to_e2m1(float value);
float from_e2m1(uint8_t code);

// A row in a tier with bf16 scales: the scale of a group is its largest magnitude over that of the codes (448, 6, 127, 7), rounded to bf16;
// codes are taken against the rounded scale, integers half to even and within +-127 or +-7, in two's complement. A group whose
// scale is 0 has codes 0; one with a weight that is not finite has scale NaN, so that it shows. The last group may be short.
// kNvfp4: scales are rounded to e4m3 times `tensor_scale`, which tensor_scale_of() makes a power of two, so that bf16 has them exactly.
void quantize_row(Tier tier, const bf16* row, int64_t cols, uint8_t* codes, bf16* scales, float tensor_scale = 1);
void dequantize_row(Tier tier, const uint8_t* codes, const bf16* scales, int64_t cols, float* row);
// Both, one after the other.
void round_to_tier(Tier tier, const bf16* row, int64_t cols, float* rounded, float tensor_scale = 1);
// The largest finite magnitude, 0 where there is none.
bf16 largest_magnitude(const bf16* values, int64_t count);
// kNvfp4: the least power of two, of 2^-126 and more, with which no scale of a tensor's groups is beyond e4m3. 1 for other tiers.
float tensor_scale_of(Tier tier, bf16 largest);
float tensor_scale_of(Tier tier, const bf16* values, int64_t count);
// A scale of kNvfp4 as a file has it: e4m3, of NaN its NaN.
uint8_t narrow_scale(bf16 scale, float tensor_scale);

// A matrix as a file has it in a tier: the codes of row after row, code_bytes() each, and the scales, tier_groups() each: bf16, of kNvfp4
// e4m3, which tensor_scale multiplies.
struct CodedMatrix {
  Tier tier = Tier::kBf16;
  const uint8_t* codes = nullptr;
  const void* scales = nullptr;
  float tensor_scale = 1;

  // The scales of a row, rounded to bf16.
  void read_scales(int64_t row, int64_t groups, bf16* to) const;
  // What follows row `first`, of rows of `in` weights.
  CodedMatrix from_row(int64_t first, int64_t in) const;
};

// How keys and values are kept: kInt8 in codes with a bf16 scale for each token and head.
enum class KvMode : uint8_t { kBf16, kInt8 };
// A head's key or value as codes times the scale that it returns: its largest magnitude over 127, rounded to bf16. Codes are taken against the
// rounded scale, half to even, within +-127; where the scale is 0 they are 0. Not finite: the scale is NaN, so that it shows.
bf16 quantize_kv(const float* row, int64_t n, int8_t* codes);

// The projections that may have one.
const std::vector<std::string>& tier_projections();

// Which tier each projection of each layer has: as `{projection}` or `L{layer}.{projection}` says, the second first, else the global one.
// lm_head has no layer; what is not a projection is BF16.
class TierPlan {
 public:
  TierPlan() = default;
  TierPlan(Tier global, std::map<std::string, Tier> overrides, bool without_bf16 = false)
      : codes_alone(without_bf16), global_(global), overrides_(std::move(overrides)) {}

  Tier of(int layer, const std::string& projection) const;

  bool codes_alone = false;  // what has a tier is not kept in BF16

 private:
  Tier global_ = Tier::kBf16;
  std::map<std::string, Tier> overrides_;
};

}  // namespace vireo
