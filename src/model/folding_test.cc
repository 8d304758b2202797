// Which tensors are multiplied by which powers of two, and that the products of BF16 stay what they were.
// SPDX-License-Identifier: Apache-2.0
#include "model/folding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace vireo {
namespace {

// Two query heads of 2 for each of two value heads, hidden 4, MLP 6.
ModelConfig small_config(bool tied_head) {
  ModelConfig config;
  config.text = {.hidden_size = 4,
                 .num_layers = 1,
                 .num_heads = 4,
                 .num_kv_heads = 2,
                 .head_dim = 2,
                 .intermediate_size = 6,
                 .vocab_size = 8};
  config.tied_head = tied_head;
  return config;
}

const std::string kLayer = "model.language_model.layers.0.";

Folds folds_of(const char* projection, const std::vector<int8_t>& exponents) {
  const ModelConfig config = small_config(false);
  Folds folds;
  for (const Projection& p : projections(config.text)) {
    if (p.name == std::string(projection)) add_fold(p, config, exponents, folds);
  }
  return folds;
}

using Exponents = std::vector<int8_t>;

TEST(Folding, NormsOfQkv) {
  const Folds folds = folds_of("qkv_proj", {1, -2, 0, 3});
  EXPECT_EQ(folds.size(), 4u);
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    const Fold& fold = folds.at(kLayer + "self_attn." + name + ".weight");
    EXPECT_EQ(fold.cols, (Exponents{1, -2, 0, 3})) << name;
    EXPECT_TRUE(fold.rows.empty());
  }
  EXPECT_EQ(folds.at(kLayer + "input_layernorm.weight").cols, (Exponents{-1, 2, 0, -3}));
}

TEST(Folding, QueryHeadsShareTheFactorsOfTheirValueHead) {
  const Folds folds = folds_of("o_proj", {1, 2, 3, 4});
  EXPECT_EQ(folds.size(), 2u);
  EXPECT_EQ(folds.at(kLayer + "self_attn.o_proj.weight").cols, (Exponents{1, 2, 1, 2, 3, 4, 3, 4}));
  EXPECT_EQ(folds.at(kLayer + "self_attn.v_proj.weight").rows, (Exponents{-1, -2, -3, -4}));
}

TEST(Folding, GateAndUpAreMultipliedButOnlyUpIsDivided) {
  Folds folds = folds_of("gate_up", {1, 2, 3, 4});
  EXPECT_EQ(folds.size(), 3u);
  for (const char* name : {"gate_proj", "up_proj"})
    EXPECT_EQ(folds.at(kLayer + "mlp." + name + ".weight").cols, (Exponents{1, 2, 3, 4})) << name;
  EXPECT_EQ(folds.at(kLayer + "post_attention_layernorm.weight").cols, (Exponents{-1, -2, -3, -4}));
  folds = folds_of("mlp_down", {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(folds.size(), 2u);
  EXPECT_EQ(folds.at(kLayer + "mlp.down_proj.weight").cols, (Exponents{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(folds.at(kLayer + "mlp.up_proj.weight").rows, (Exponents{-1, -2, -3, -4, -5, -6}));
}

TEST(Folding, TheHeadHasTheLastNorm) {
  const Folds folds = folds_of("lm_head", {1, 2, 3, 4});
  EXPECT_EQ(folds.size(), 2u);
  EXPECT_EQ(folds.at("lm_head.weight").cols, (Exponents{1, 2, 3, 4}));
  EXPECT_EQ(folds.at("model.language_model.norm.weight").cols, (Exponents{-1, -2, -3, -4}));
}

TEST(Folding, ValuesGetTheFactorsOfTheirInputsAndOutputs) {
  const ModelConfig config = small_config(false);
  const auto all = projections(config.text);
  Folds folds;
  add_fold(all[0], config, {1, 1, 1, 1}, folds);
  add_fold(all[1], config, {0, 3, 0, 0}, folds);
  const Fold& fold = folds.at(kLayer + "self_attn.v_proj.weight");
  const bf16 ones[4] = {to_bf16(1), to_bf16(1), to_bf16(1), to_bf16(1)};
  bf16 row[4];
  fold_row(fold, 1, ones, 4, row);
  EXPECT_EQ(to_float(row[2]), 0.25f);
}

TEST(Folding, MaySplitAndJoinAllBitsOfWhatMayBeFolded) {
  const Fold up{{2 * kMostExponent}, {}}, down{{-2 * kMostExponent}, {}};
  int folded = 0;
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const bf16 weight{static_cast<uint16_t>(bits)};
    if (!may_be_folded(weight)) continue;
    ++folded;
    bf16 there, back;
    for (const auto& [first, second] : {std::pair(up, down), std::pair(down, up)}) {
      fold_row(first, 0, &weight, 1, &there);
      fold_row(second, 0, &there, 1, &back);
      ASSERT_EQ(back.bits, weight.bits);
    }
  }
  EXPECT_GT(folded, 50000);
}

TEST(Folding, WhatIsNotExactMayNotBeFolded) {
  EXPECT_TRUE(may_be_folded(to_bf16(0)));
  EXPECT_TRUE(may_be_folded(to_bf16(-1e-9f)));
  for (const float v : {1e-38f, 1e-40f, 3e38f, INFINITY, std::numeric_limits<float>::quiet_NaN()})
    EXPECT_FALSE(may_be_folded(to_bf16(v))) << v;
}

}  // namespace
}  // namespace vireo
