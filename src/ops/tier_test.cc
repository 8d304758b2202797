// Weight tiers against a plain implementation: codes by trying all of them in double precision.
// SPDX-License-Identifier: Apache-2.0
#include "ops/tier.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace vireo {
namespace {

constexpr Tier kTiers[] = {Tier::kW8, Tier::kW4, Tier::kInt8, Tier::kInt4, Tier::kNvfp4};

// All finite values of a code format by code, as its definition has them.
std::vector<std::pair<int, double>> values_of(Tier tier) {
  std::vector<std::pair<int, double>> values;
  if (tier == Tier::kInt8) {
    for (int v = -127; v <= 127; ++v) values.emplace_back(v & 255, v);
  } else if (tier == Tier::kInt4) {
    for (int v = -7; v <= 7; ++v) values.emplace_back(v & 15, v);
  } else {
    const bool e4m3 = tier == Tier::kW8;
    const int mantissa_bits = e4m3 ? 3 : 1, exponent_bits = e4m3 ? 4 : 2, bias = e4m3 ? 7 : 1;
    const int magnitudes = 1 << (mantissa_bits + exponent_bits);
    for (int code = 0; code < magnitudes; ++code) {
      if (e4m3 && code == 127) continue;  // NaN
      const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
      const double fraction = static_cast<double>(mantissa) / (1 << mantissa_bits);
      const double v = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
      values.emplace_back(code, v);
      values.emplace_back(code | magnitudes, -v);
    }
  }
  return values;
}

// The nearest code; of two the even one, of zeros that of the value's sign.
int nearest(Tier tier, double value) {
  static const auto tables = [] {
    std::vector<std::vector<std::pair<int, double>>> all;
    for (Tier t : kTiers) all.push_back(values_of(t));
    return all;
  }();
  const auto& table = tables[static_cast<size_t>(std::find(std::begin(kTiers), std::end(kTiers), tier) - kTiers)];
  int best = 0;
  double least = std::numeric_limits<double>::infinity();
  const auto better = [&](int code, double v, double distance) {
    if (distance != least) return distance < least;
    if (code % 2 != best % 2) return code % 2 == 0;
    return std::signbit(v) == std::signbit(value);  // two zeros
  };
  for (const auto& [code, v] : table) {
    const double distance = std::fabs(v - value);
    if (!better(code, v, distance)) continue;
    best = code;
    least = distance;
  }
  return best;
}

double most_of(Tier tier) {
  return tier == Tier::kW8 ? 448 : tier == Tier::kInt8 ? 127 : tier == Tier::kInt4 ? 7 : 6;
}

float largest_of(const std::vector<bf16>& row, int64_t first, int64_t end) {
  float largest = 0;
  for (int64_t k = first; k < end; ++k) largest = std::max(largest, std::fabs(to_float(row[static_cast<size_t>(k)])));
  return largest;
}

double plain_tensor_scale(Tier tier, const std::vector<bf16>& row) {
  const double largest = largest_of(row, 0, static_cast<int64_t>(row.size()));
  if (tier != Tier::kNvfp4 || largest == 0) return 1;
  double scale = 0x1p-126;
  while (largest / 6 / scale > 448) scale *= 2;
  return scale;
}

bf16 plain_scale(Tier tier, float largest, double tensor_scale) {
  const float wanted = largest / static_cast<float>(most_of(tier));
  if (tier != Tier::kNvfp4) return to_bf16(wanted);
  const int code = nearest(Tier::kW8, double{wanted} / tensor_scale);
  for (const auto& [c, v] : values_of(Tier::kW8)) {
    if (c == code) return to_bf16(static_cast<float>(v * tensor_scale));
  }
  return {};
}

void expect_plain(Tier tier, const std::vector<bf16>& row, const std::string& what) {
  SCOPED_TRACE(what + " as " + tier_name(tier) + ", " + std::to_string(row.size()) + " columns");
  const int64_t cols = static_cast<int64_t>(row.size());
  std::vector<uint8_t> codes(static_cast<size_t>(code_bytes(tier, cols)), 0xcc);
  std::vector<bf16> scales(static_cast<size_t>(tier_groups(cols)), bf16{0xffff});
  std::vector<float> back(row.size(), NAN);
  const double tensor_scale = plain_tensor_scale(tier, row);
  ASSERT_EQ(tensor_scale_of(tier, row.data(), cols), tensor_scale);
  quantize_row(tier, row.data(), cols, codes.data(), scales.data(), static_cast<float>(tensor_scale));
  dequantize_row(tier, codes.data(), scales.data(), cols, back.data());
  for (int64_t first = 0; first < cols; first += kTierGroup) {
    const int64_t end = std::min(cols, first + kTierGroup);
    const bf16 scale = plain_scale(tier, largest_of(row, first, end), tensor_scale);
    ASSERT_EQ(scales[static_cast<size_t>(first / kTierGroup)].bits, scale.bits);
    for (int64_t k = first; k < end; ++k) {
      const float w = to_float(row[static_cast<size_t>(k)]), s = to_float(scale);
      const int want = s == 0 ? 0 : nearest(tier, static_cast<double>(w / s));
      const int got =
          !has_nibbles(tier) ? codes[static_cast<size_t>(k)] : codes[static_cast<size_t>(k / 2)] >> (k % 2 * 4) & 15;
      ASSERT_EQ(got, want) << "column " << k << ": " << w << " / " << s;
      double value = 0;
      for (const auto& [code, v] : values_of(tier)) {
        if (code == got) value = v;
      }
      ASSERT_EQ(back[static_cast<size_t>(k)], static_cast<float>(value) * s) << "column " << k;
    }
  }
}

TEST(Tier, CodesAndScalesAreThoseOfThePlainImplementation) {
  std::mt19937 random(std::random_device{}());
  std::normal_distribution<float> normal;
  for (const Tier tier : kTiers) {
    for (const int64_t cols : {1, 2, 15, 16, 17, 31, 40, 2048}) {
      const auto row_of = [&](auto value) {
        std::vector<bf16> row;
        for (int64_t i = 0; i < cols; ++i) row.push_back(to_bf16(value(i)));
        return row;
      };
      expect_plain(tier, row_of([&](int64_t) { return normal(random) * 0.05f; }), "random");
      expect_plain(tier, row_of([&](int64_t i) { return normal(random) * (i % 16 == 3 ? 50.0f : 0.02f); }), "outliers");
      expect_plain(tier, row_of([&](int64_t) { return 0.0f; }), "zeros");
      expect_plain(tier, row_of([&](int64_t i) { return i % 3 == 0 ? -0.0f : -std::fabs(normal(random)); }),
                   "negative");
      expect_plain(tier, row_of([&](int64_t) { return normal(random) * 1e-39f; }), "denormal");
      expect_plain(tier, row_of([&](int64_t i) { return i % 2 ? 1e-45f : -3e-44f; }), "scale rounds to zero");
      expect_plain(tier, row_of([&](int64_t i) { return i % 2 ? 3.3e38f : -2e38f; }), "huge");
      // Exact multiples of an exact scale meet every tie.
      expect_plain(tier, row_of([&](int64_t i) {
                     return i % 16 == 0 ? static_cast<float>(most_of(tier)) : static_cast<float>(i % 29) * 0.25f;
                   }),
                   "ties");
    }
  }
}

TEST(Tier, AWeightThatIsNotFiniteShows) {
  for (const Tier tier : kTiers) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      std::vector<bf16> row(40, to_bf16(1.0f));
      row[20] = to_bf16(bad);
      std::vector<float> rounded(row.size());
      round_to_tier(tier, row.data(), 40, rounded.data());
      for (size_t k = 0; k < row.size(); ++k) EXPECT_EQ(std::isnan(rounded[k]), k / 16 == 1) << k;
    }
  }
}

TEST(Tier, EveryCodeOfTheFloatFormatsComesBack) {
  for (int code = 0; code < 256; ++code) {
    const float v = from_e4m3(static_cast<uint8_t>(code));
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(v));
    } else {
      EXPECT_EQ(to_e4m3(v), code) << v;
    }
  }
  for (int code = 0; code < 16; ++code) EXPECT_EQ(to_e2m1(from_e2m1(static_cast<uint8_t>(code))), code);
  EXPECT_EQ(to_e4m3(1e9f), 0x7e);
  EXPECT_EQ(to_e4m3(-1e9f), 0xfe);
  EXPECT_EQ(to_e2m1(1e9f), 7);
}

TEST(Tier, NamesAndSizes) {
  for (const std::string& name : tier_names()) EXPECT_EQ(tier_name(*find_tier(name)), name);
  EXPECT_FALSE(find_tier("fp4"));
  EXPECT_FALSE(find_tier("W8"));
  EXPECT_EQ(tier_bits(Tier::kBf16), 16);
  EXPECT_EQ(tier_bits(Tier::kW8), 9);
  EXPECT_EQ(tier_bits(Tier::kInt4), 5);
  EXPECT_EQ(tier_bits(Tier::kNvfp4), 5);
  EXPECT_EQ(code_bytes(Tier::kW4, 17), 9);
  EXPECT_EQ(code_bytes(Tier::kInt8, 17), 17);
}

TEST(TierPlan, LayerBeforeProjectionBeforeGlobal) {
  const TierPlan plan(Tier::kW8, {{"gate_up", Tier::kW4}, {"L3.gate_up", Tier::kBf16}, {"lm_head", Tier::kInt8}});
  EXPECT_EQ(plan.of(0, "qkv_proj"), Tier::kW8);
  EXPECT_EQ(plan.of(0, "gate_up"), Tier::kW4);
  EXPECT_EQ(plan.of(3, "gate_up"), Tier::kBf16);
  EXPECT_EQ(plan.of(33, "gate_up"), Tier::kW4);
  EXPECT_EQ(plan.of(-1, "lm_head"), Tier::kInt8);
  EXPECT_EQ(plan.of(-1, "embed_tokens"), Tier::kBf16);
  EXPECT_EQ(plan.of(2, "router"), Tier::kBf16);
  EXPECT_EQ(plan.of(-1, ""), Tier::kBf16);
  const TierPlan one(Tier::kBf16, {{"o_proj", Tier::kInt4}});
  EXPECT_EQ(one.of(5, "o_proj"), Tier::kInt4);
  EXPECT_EQ(one.of(5, "mlp_down"), Tier::kBf16);
  EXPECT_EQ(TierPlan().of(0, "qkv_proj"), Tier::kBf16);
}

TEST(KvRows, OneScaleOfTheLargestAndHalvesToEven) {
  const float row[] = {127, -63.5f, 0.5f, 1.5f, -2.5f, 0};
  int8_t codes[6];
  EXPECT_EQ(to_float(quantize_kv(row, 6, codes)), 1.0f);
  EXPECT_EQ(std::vector<int8_t>(codes, codes + 6), (std::vector<int8_t>{127, -64, 0, 2, -2, 0}));
  // The scale is rounded first: 200 / 127 becomes 1.578125, and the largest does not pass 127.
  const float larger[] = {200, -200, 1.6f};
  EXPECT_EQ(to_float(quantize_kv(larger, 3, codes)), 1.578125f);
  EXPECT_EQ(std::vector<int8_t>(codes, codes + 3), (std::vector<int8_t>{127, -127, 1}));
  const float zeros[] = {0, -0.0f};
  EXPECT_EQ(to_float(quantize_kv(zeros, 2, codes)), 0.0f);
  EXPECT_EQ(codes[0] | codes[1], 0);
  const float bad[] = {1, std::numeric_limits<float>::infinity()};
  EXPECT_TRUE(std::isnan(to_float(quantize_kv(bad, 2, codes))));
}

}  // namespace
}  // namespace vireo
