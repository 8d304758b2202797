// The table of sizes against parameter totals and tensor counts of the published checkpoints, without writing one.
// SPDX-License-Identifier: Apache-2.0
#include "engine/published_shapes.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/published_files.h"
#include "files/test_files.h"

namespace vireo {
namespace {

struct Totals {
  int64_t text = 0, vision = 0;
  size_t text_tensors = 0, vision_tensors = 0;
};

Totals totals(const ModelConfig& config) {
  Totals sum;
  for (const TensorShape& t : published_tensors(config)) {
    const bool is_vision = t.name.rfind("model.visual.", 0) == 0;
    (is_vision ? sum.vision : sum.text) += t.size();
    ++(is_vision ? sum.vision_tensors : sum.text_tensors);
  }
  return sum;
}

void expect_totals(const char* size, const Totals& want) {
  SCOPED_TRACE(size);
  const Totals got = totals(published_config(size, 0, 0));
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(got.vision, want.vision);
  EXPECT_EQ(got.text_tensors, want.text_tensors);
  EXPECT_EQ(got.vision_tensors, want.vision_tensors);
}

TEST(PublishedShapes, Totals) {
  expect_totals("2b", {1'720'574'976, 406'957'056, 310, 315});
  expect_totals("4b", {4'022'468'096, 415'347'712, 398, 315});
  expect_totals("8b", {8'190'735'360, 576'388'336, 399, 351});
  expect_totals("32b", {32'762'123'264, 595'266'800, 707, 351});
  expect_totals("30b-a3b", {30'532'122'624, 538'631'408, 531, 351});
  expect_totals("235b-a22b", {235'093'634'560, 576'388'336, 1037, 351});
}

TEST(PublishedShapes, NamesAndShapes) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const TensorShape& t : published_tensors(published_config("30b-a3b", 0, 0))) shapes[t.name] = t.shape;
  using Shape = std::vector<int64_t>;
  const std::string layer = "model.language_model.layers.47.", vision = "model.visual.";
  EXPECT_EQ(shapes["lm_head.weight"], Shape({151936, 2048}));
  EXPECT_EQ(shapes[layer + "self_attn.q_proj.weight"], Shape({4096, 2048}));
  EXPECT_EQ(shapes[layer + "self_attn.k_norm.weight"], Shape({128}));
  EXPECT_EQ(shapes[layer + "mlp.gate.weight"], Shape({128, 2048}));
  EXPECT_EQ(shapes[layer + "mlp.experts.gate_up_proj"], Shape({128, 2048, 1536}));
  EXPECT_EQ(shapes[layer + "mlp.experts.down_proj"], Shape({128, 768, 2048}));
  EXPECT_EQ(shapes[vision + "patch_embed.proj.weight"], Shape({1152, 3, 2, 16, 16}));
  EXPECT_EQ(shapes[vision + "blocks.26.mlp.linear_fc1.bias"], Shape({4304}));
  EXPECT_EQ(shapes[vision + "merger.norm.weight"], Shape({1152}));
  EXPECT_EQ(shapes[vision + "deepstack_merger_list.2.norm.weight"], Shape({4608}));
}

TEST(PublishedShapes, CutModelsKeepTheDeepStackTheyCan) {
  const auto taps = [](const char* size, int layers, int depth) {
    return published_config(size, layers, depth).vision.deepstack_layers;
  };
  EXPECT_EQ(taps("2b", 0, 24), std::vector<int>({5, 11, 17}));
  EXPECT_EQ(taps("8b", 5, 0), std::vector<int>({8, 16, 24}));
  EXPECT_EQ(taps("8b", 1, 0), std::vector<int>({8}));
  EXPECT_EQ(taps("2b", 0, 3), std::vector<int>({0, 1, 2}));
  EXPECT_EQ(taps("2b", 2, 3), std::vector<int>({1, 2}));
  EXPECT_EQ(taps("2b", 1, 1), std::vector<int>({0}));
  EXPECT_EQ(taps("2b", 0, 12), std::vector<int>({3, 6, 9}));
}

TEST(PublishedShapes, RefusesWhatIsNotThere) {
  EXPECT_ERROR(published_config("3b", 0, 0), "kUsage", "'3b'", "2b, 4b, 8b, 32b, 30b-a3b, 235b-a22b");
  EXPECT_ERROR(published_config("2b", 29, 0), "kUsage", "--layers 29", "1 to 28");
  EXPECT_ERROR(published_config("2b", -1, 0), "kUsage", "--layers -1");
  EXPECT_ERROR(published_config("8b", 0, 28), "kUsage", "--vision-depth 28", "1 to 27");
}

void expect_same_config(const ModelConfig& got, const ModelConfig& want) {
  EXPECT_EQ(got.model_type, want.model_type);
  EXPECT_EQ(got.tied_head, want.tied_head);
  EXPECT_EQ(got.eos_tokens, want.eos_tokens);
  EXPECT_EQ(got.image_token, want.image_token);
  EXPECT_EQ(got.text.num_layers, want.text.num_layers);
  EXPECT_EQ(got.text.num_kv_heads, want.text.num_kv_heads);
  EXPECT_EQ(got.text.rope_theta, 5e6);
  EXPECT_EQ(got.text.mrope_section, (std::array<int, 3>{24, 20, 20}));
  EXPECT_EQ(got.text.num_experts, want.text.num_experts);
  EXPECT_EQ(got.text.experts_per_token, want.text.experts_per_token);
  EXPECT_EQ(got.text.moe_intermediate_size, want.text.moe_intermediate_size);
  EXPECT_EQ(got.vision.deepstack_layers, want.vision.deepstack_layers);
  EXPECT_EQ(got.vision.position_side, want.vision.position_side);
}

TEST(PublishedShapes, ConfigFileReadsBack) {
  for (const char* size : {"2b", "4b", "8b", "32b", "30b-a3b", "235b-a22b"}) {
    SCOPED_TRACE(size);
    const TempFolder folder;
    const ModelConfig config = published_config(size, 0, 0);
    folder.write("config.json", published_config_json(config));
    folder.write("generation_config.json", published_generation_config_json(config));
    const ModelConfig got = load_model_config(folder.path());
    expect_same_config(got, config);
    EXPECT_EQ(totals(got).text, totals(config).text);
    EXPECT_EQ(totals(got).vision, totals(config).vision);
  }
}

}  // namespace
}  // namespace vireo
