// SPDX-License-Identifier: Apache-2.0
#include "model/compensated_rounding.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/vector_clones.h"
#include "model/tier_codes.h"

namespace vireo {
namespace {

constexpr int64_t kRowsAtOnce = 64;
constexpr int kScales = 24;  // of a group, that are tried
constexpr float kLeastRounded =
    0x1p-100f;  // the largest weight of a group: below, scales come near what a float cannot hold

// Rows of errors, or of whatever else, with their groups filled up with zeros.
class PaddedRows {
 public:
  PaddedRows(int64_t count, int64_t groups)
      : stride_(groups * kTierGroup), values_(static_cast<size_t>(count * stride_)) {}

  float* group(int64_t row, int64_t group) { return values_.data() + row * stride_ + group * kTierGroup; }

  // Of the first rows times U without its diagonal blocks, a group of columns.
  std::vector<double> times(const InputFactor& factor, int64_t group, int64_t count) const {
    std::vector<double> sums(static_cast<size_t>(count * kTierGroup));
    for (int64_t before = 0; before < group; ++before)
      add_product(values_.data() + before * kTierGroup, stride_, factor.block(before, group), count, sums.data());
    return sums;
  }

 private:
  int64_t stride_;
  std::vector<float> values_;
};

// A row's group, as it is and less what makes up for the groups before it, and what the factor says of it. Filled up with zeros.
struct Group {
  int64_t count = 0;
  float weights[kTierGroup] = {}, wanted[kTierGroup] = {};
  const float* u = nullptr;
  const float* variances = nullptr;

  float largest() const {
    float most = 0;
    for (const float w : wanted) most = std::max(most, std::fabs(w));
    return most;
  }
  bool is_finite() const {
    return std::ranges::all_of(wanted, [](float w) { return std::isfinite(w); });
  }
};

// The roundings of a group by several scales, side by side.
template <typename Codes>
struct Trials {
  float scales[kScales];
  float values[kTierGroup][kScales];  // of the codes
  float errors[kTierGroup][kScales];
  float losses[kScales] = {};

  VIREO_VECTOR_CLONES void round(const Group& group) {
    for (int64_t k = 0; k < kTierGroup; ++k) {
      float wanted[kScales];
      std::fill_n(wanted, kScales, group.wanted[k]);
      for (int64_t before = 0; before < k; ++before) {
        const float u = group.u[before * kTierGroup + k];
        for (int s = 0; s < kScales; ++s) wanted[s] -= errors[before][s] * u;
      }
      const float weight = group.weights[k], variance = group.variances[k];
      for (int s = 0; s < kScales; ++s) {
        values[k][s] = Codes::nearest(wanted[s] / scales[s]);
        const float rounded = values[k][s] * scales[s], d = rounded - wanted[s];
        errors[k][s] = rounded - weight;
        losses[s] += variance * (d * d);
      }
    }
  }

  int best() const { return static_cast<int>(std::min_element(losses, losses + kScales) - losses); }
};

// By what the usual scale is multiplied. Codes of int8 are so many that only its neighbours are of use.
float tried(Tier tier, int i) {
  constexpr int kBelow = 6;
  return 1 + static_cast<float>(i - kBelow) / (tier == Tier::kInt8 ? 128 : 16);
}

bf16 scale_near(Tier tier, float wanted, float tensor_scale) {
  if (tier != Tier::kNvfp4) return to_bf16(wanted);
  const uint8_t code = std::max<uint8_t>(1, to_e4m3(wanted / tensor_scale));
  return to_bf16(from_e4m3(code) * tensor_scale);
}

void put_code(Tier tier, int64_t c, uint8_t code, uint8_t* codes) {
  if (!has_nibbles(tier)) {
    codes[c] = code;
  } else {
    codes[c / 2] = static_cast<uint8_t>(c % 2 == 0 ? code : codes[c / 2] | code << 4);
  }
}

template <typename Codes>
double round_group(Tier tier, const Group& group, float tensor_scale, uint8_t* codes, bf16* scale, float* errors) {
  Trials<Codes> trials;
  const float usual = group.largest() / Codes::kMost;
  bf16 scales[kScales];
  for (int s = 0; s < kScales; ++s) {
    scales[s] = scale_near(tier, usual * tried(tier, s), tensor_scale);
    trials.scales[s] = to_float(scales[s]);
  }
  trials.round(group);
  const int best = trials.best();
  *scale = scales[best];
  for (int64_t c = 0; c < group.count; ++c) put_code(tier, c, Codes::code(trials.values[c][best]), codes);
  for (int64_t c = 0; c < group.count; ++c) errors[c] = trials.errors[c][best];
  return trials.losses[best];
}

// A group that has nothing to choose: too small for a scale, or not finite, which no other group shall suffer from.
void round_plainly(Tier tier, const Group& group, float tensor_scale, uint8_t* codes, bf16* scale, float* errors) {
  bf16 wanted[kTierGroup];
  float rounded[kTierGroup];
  std::ranges::transform(group.wanted, wanted, to_bf16);
  quantize_row(tier, wanted, group.count, codes, scale, tensor_scale);
  dequantize_row(tier, codes, scale, group.count, rounded);
  for (int64_t c = 0; c < group.count; ++c) errors[c] = group.is_finite() ? rounded[c] - group.weights[c] : 0;
}

Group group_of(const InputFactor& factor, const bf16* row, int64_t index, const double* made_up) {
  Group group{.count = std::min(kTierGroup, factor.inputs() - index * kTierGroup),
              .u = factor.block(index, index),
              .variances = factor.variances(index)};
  for (int64_t c = 0; c < group.count; ++c) {
    group.weights[c] = to_float(row[index * kTierGroup + c]);
    group.wanted[c] = static_cast<float>(group.weights[c] - made_up[c]);
  }
  return group;
}

template <typename Codes>
class Rounding {
 public:
  Rounding(Tier tier, const InputFactor& factor, float tensor_scale)
      : tier_(tier), factor_(factor), tensor_scale_(tensor_scale) {}

  double round(const bf16* rows, int64_t count, uint8_t* codes, bf16* scales) const {
    PaddedRows errors(count, factor_.groups());
    double lost = 0;
    for (int64_t g = 0; g < factor_.groups(); ++g) {
      const std::vector<double> made_up = errors.times(factor_, g, count);
      for (int64_t r = 0; r < count; ++r) {
        const Group group = group_of(factor_, rows + r * factor_.inputs(), g, made_up.data() + r * kTierGroup);
        lost += round(group, codes + r * code_bytes(tier_, factor_.inputs()) + code_bytes(tier_, g * kTierGroup),
                      scales + r * factor_.groups() + g, errors.group(r, g));
      }
    }
    return lost;
  }

 private:
  double round(const Group& group, uint8_t* codes, bf16* scale, float* errors) const {
    if (group.is_finite() && group.largest() >= kLeastRounded)
      return round_group<Codes>(tier_, group, tensor_scale_, codes, scale, errors);
    round_plainly(tier_, group, tensor_scale_, codes, scale, errors);
    return 0;
  }

  Tier tier_;
  const InputFactor& factor_;
  float tensor_scale_;
};

}  // namespace

double CompensatedRounding::quantize(const bf16* rows, int64_t count, uint8_t* codes, bf16* scales) const {
  return with_codes_of(tier_, [&]<typename Codes>(Codes) {
    const Rounding<Codes> rounding(tier_, factor_, tensor_scale_);
    double lost = 0;
    for (int64_t first = 0; first < count; first += kRowsAtOnce) {
      lost += rounding.round(rows + first * factor_.inputs(), std::min(kRowsAtOnce, count - first),
                             codes + first * code_bytes(tier_, factor_.inputs()), scales + first * factor_.groups());
    }
    return lost;
  });
}

double product_squares(const InputFactor& factor, const float* errors, int64_t count) {
  double sum = 0;
  for (int64_t r = 0; r < count; ++r) {
    PaddedRows row(1, factor.groups());
    std::copy_n(errors + r * factor.inputs(), factor.inputs(), row.group(0, 0));
    for (int64_t g = 0; g < factor.groups(); ++g) {
      std::vector<double> product = row.times(factor, g, 1);
      add_product(row.group(0, g), 0, factor.block(g, g), 1, product.data());
      for (int64_t c = 0; c < kTierGroup; ++c) {
        const double p = product[static_cast<size_t>(c)];
        sum += factor.variances(g)[c] * p * p;
      }
    }
  }
  return sum;
}

}  // namespace vireo
