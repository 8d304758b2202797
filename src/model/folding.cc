// SPDX-License-Identifier: Apache-2.0
#include "model/folding.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "base/check.h"

namespace vireo {
namespace {

// Far enough from what BF16 cannot hold for two factors, and for a scale that is the 7th part of a weight.
constexpr float kLeast = 0x1p-100f, kMost = 0x1p100f;

float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(127 + exponent) << 23);
}

// Value heads are read by several query heads each.
Maker value_rows(const Projection& p, const TextConfig& c) {
  const int64_t sharing = c.num_heads / c.num_kv_heads;
  Maker maker{.kind = Maker::Kind::kRows,
              .tensor = fmt::format("model.language_model.layers.{}.self_attn.v_proj.weight", p.layer),
              .factors = c.kv_size(),
              .cols = c.hidden_size};
  for (int64_t head = 0; head < c.num_heads; ++head) {
    for (int64_t d = 0; d < c.head_dim; ++d)
      maker.factor_of.push_back(static_cast<int32_t>(head / sharing * c.head_dim + d));
  }
  return maker;
}

Maker one_each(Maker maker) {
  for (int64_t i = 0; i < maker.factors; ++i) maker.factor_of.push_back(static_cast<int32_t>(i));
  return maker;
}

Maker norm(const std::string& name, const TextConfig& c) {
  return one_each({.kind = Maker::Kind::kNorm, .tensor = name + ".weight", .factors = c.hidden_size});
}

}  // namespace

void fold_row(const Fold& fold, int64_t row, const bf16* from, int64_t cols, bf16* to) {
  const int of_row = fold.rows.empty() ? 0 : fold.rows[static_cast<size_t>(row)];
  for (int64_t c = 0; c < cols; ++c) {
    const int of_col = fold.cols.empty() ? 0 : fold.cols[static_cast<size_t>(c)];
    to[c] = to_bf16(to_float(from[c]) * power_of_two(of_row + of_col));
  }
}

bool may_be_folded(bf16 weight) {
  const float magnitude = std::fabs(to_float(weight));
  return magnitude == 0 || (magnitude >= kLeast && magnitude <= kMost);
}

Maker maker_of(const Projection& p, const TextConfig& c) {
  const std::string name = p.name;
  if (name == "lm_head") return norm("model.language_model.norm", c);
  const std::string layer = fmt::format("model.language_model.layers.{}.", p.layer);
  if (name == "qkv_proj") return norm(layer + "input_layernorm", c);
  if (name == "gate_up") return norm(layer + "post_attention_layernorm", c);
  if (name == "o_proj") return value_rows(p, c);
  CHECK(name == "mlp_down");
  return one_each({.kind = Maker::Kind::kRows,
                   .tensor = layer + "mlp.up_proj.weight",
                   .factors = c.intermediate_size,
                   .cols = c.hidden_size});
}

void add_fold(const Projection& p, const ModelConfig& config, const std::vector<int8_t>& exponents, Folds& folds) {
  const Maker maker = maker_of(p, config.text);
  std::vector<int8_t> cols, inverse;
  for (const int32_t factor : maker.factor_of) cols.push_back(exponents[static_cast<size_t>(factor)]);
  for (const int8_t e : exponents) inverse.push_back(static_cast<int8_t>(-e));
  for (const ProjectionPart& part : parts_of(p, config)) folds[part.rows].cols = cols;
  Fold& fold = folds[maker.tensor];
  (maker.kind == Maker::Kind::kNorm ? fold.cols : fold.rows) = inverse;
}

}  // namespace vireo
