// A mixture of experts in weight tiers, through the public face: how close to BF16, the same for every layout of the checkpoint, changed in
// place, counted in memory.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/cosine.h"
#include "engine/test_experts.h"
#include "files/test_files.h"
#include "vireo/vireo.h"

namespace vireo {
namespace {

using std::string;
using Overrides = std::map<string, string>;

const char* const kTiers[] = {"int8", "w8", "int4", "w4", "nvfp4"};

std::unique_ptr<Engine> load(const string& checkpoint, const Overrides& overrides, const string& device = "cpu") {
  return Engine::load({.checkpoint = checkpoint, .device = device, .max_seq = 128, .wq_overrides = overrides});
}

// Of a prompt, and of the steps after it along fixed tokens.
struct Logits {
  std::vector<float> prompt;
  std::vector<std::vector<float>> steps;
  bool operator==(const Logits&) const = default;
};

Logits logits(Engine& engine) {
  engine.reset();
  engine.set_prompt_text("What is 15 + 36?");
  Logits all{engine.prefill(), {}};
  for (const int32_t token : {17, 5, 230, 71, 900, 3, 512, 44}) all.steps.push_back(engine.decode_step(token));
  return all;
}

// Of each step, ascending.
std::vector<double> cosines(const Logits& a, const Logits& b) {
  std::vector<double> all;
  for (size_t s = 0; s < a.steps.size(); ++s) all.push_back(cosine(a.steps[s], b.steps[s]));
  std::sort(all.begin(), all.end());
  return all;
}

TEST(ExpertTiers, AreCloseToBf16) {
  const Logits plain = logits(*load(kExperts, {}));
  // The input of a router may be changed so that it chooses another expert of random ones: what counts is the step in the middle.
  const std::map<string, double> middle = {
      {"int8", 0.9999}, {"w8", 0.999}, {"int4", 0.99}, {"w4", 0.99}, {"nvfp4", 0.99}};
  for (const string tier : kTiers) {
    const Logits in_tier = logits(*load(kExperts, {{"gate_up", tier}, {"mlp_down", tier}}));
    EXPECT_EQ(in_tier.prompt, plain.prompt) << tier;
    EXPECT_NE(in_tier.steps, plain.steps) << tier;
    const std::vector<double> found = cosines(in_tier, plain);
    std::printf("%s: cosines of %.6f and more, %.6f in the middle\n", tier.c_str(), found[0], found[found.size() / 2]);
    EXPECT_GT(found[0], 0.9) << tier;
    EXPECT_GT(found[found.size() / 2], middle.at(tier)) << tier;
  }
}

TEST(ExpertTiers, TheReferenceComputesTheSame) {
  const Overrides overrides = {{"gate_up", "int8"}, {"mlp_down", "w4"}};
  const Logits cpu = logits(*load(kExperts, overrides)), reference = logits(*load(kExperts, overrides, "reference"));
  EXPECT_GT(cosines(cpu, reference)[0], 0.9999);
}

TEST(ExpertTiers, EveryLayoutGivesTheSameBits) {
  const TempFolder folder;
  for (const Stored stored : {Stored::kInOut, Stored::kApart}) {
    const auto path = folder.path() / (stored == Stored::kInOut ? "in-out" : "apart");
    StoredExperts(path, stored);
    for (const string tier : kTiers) {
      const Overrides overrides = {{"gate_up", tier}, {"mlp_down", tier}};
      EXPECT_EQ(logits(*load(path.string(), overrides)), logits(*load(kExperts, overrides))) << path << tier;
    }
  }
}

TEST(ExpertTiers, ChangeInPlace) {
  const auto engine = load(kExperts, {});
  const Logits plain = logits(*engine);
  const uint64_t bytes = engine->info().weight_bytes;
  for (const Overrides& overrides :
       {Overrides{{"gate_up", "int8"}}, {{"mlp_down", "w4"}}, {{"L1.gate_up", "nvfp4"}, {"L2.mlp_down", "w8"}}}) {
    engine->set_wq_overrides(overrides);
    const auto loaded = load(kExperts, overrides);
    EXPECT_EQ(logits(*engine), logits(*loaded)) << overrides.begin()->first;
    EXPECT_NE(logits(*engine), plain) << overrides.begin()->first;
    EXPECT_EQ(engine->info().weight_bytes, loaded->info().weight_bytes);
  }
  engine->set_wq_overrides({});
  EXPECT_EQ(logits(*engine), plain);
  EXPECT_EQ(engine->info().weight_bytes, bytes);
}

TEST(ExpertTiers, AreCounted) {
  const uint64_t plain = load(kExperts, {})->info().weight_bytes;
  constexpr uint64_t kGateUp = 8 * 96 * 128, kDown = 8 * 128 * 48;  // of a layer
  EXPECT_EQ(load(kExperts, {{"gate_up", "int8"}})->info().weight_bytes, plain + 3 * kGateUp * 9 / 8);
  EXPECT_EQ(load(kExperts, {{"L1.mlp_down", "w4"}})->info().weight_bytes, plain + kDown * 5 / 8);
  EXPECT_TRUE(load(kExperts, {{"gate_up", "int8"}})->info().notes.empty());
}

TEST(ExpertTiers, LowMemoryKeepsNoBf16) {
  const auto load_low = [](const Overrides& overrides, const string& device) {
    return Engine::load(
        {.checkpoint = kExperts, .device = device, .max_seq = 128, .wq_overrides = overrides, .low_memory = true});
  };
  const Overrides overrides = {{"gate_up", "int8"}, {"L1.mlp_down", "w8"}};
  const auto plain = load(kExperts, {}), low = load_low(overrides, "cpu");
  EXPECT_LT(low->info().weight_bytes, plain->info().weight_bytes);
  const Logits got = logits(*low);
  EXPECT_NE(got.prompt, logits(*plain).prompt);
  EXPECT_GT(cosines(got, logits(*plain))[got.steps.size() / 2], 0.999);
  EXPECT_GT(cosines(got, logits(*load_low(overrides, "reference")))[0], 0.9999);
}

}  // namespace
}  // namespace vireo
