// What a model will take of memory is known, and refused, before its weights are read.
// SPDX-License-Identifier: Apache-2.0
#include "engine/model.h"

#include <gtest/gtest.h>

#include "files/test_files.h"
#include "ops/reference.h"

namespace vireo {
namespace {

ModelInfo plan_of(const Options& changed) {
  Options options = changed;
  options.checkpoint = VIREO_SOURCE_DIR "/models/tiny";
  if (options.device == "auto") options.device = "cpu";
  ModelInfo plan;
  int plans = 0;
  const Model model(
      options, [&](uint64_t, uint64_t) { EXPECT_EQ(plans, 1); },
      [&](const ModelInfo& info) {
        plan = info;
        ++plans;
      });
  EXPECT_EQ(plans, 1);
  EXPECT_EQ(model.info.device, plan.device);
  return plan;
}

TEST(Model, PlansBeforeItLoads) {
  const ModelInfo plan = plan_of({.max_seq = 128});
  EXPECT_EQ(plan.device.substr(0, 5), "cpu (");
  EXPECT_EQ(plan.weight_bytes, 17704704u);
  EXPECT_EQ(plan.kv_bytes, 128u * 6144);
  EXPECT_GT(plan.available_bytes.value_or(0), 0u);
  EXPECT_TRUE(plan.notes.empty());
}

TEST(Model, ScratchGrowsWithTheStepAndThePicture) {
  const auto scratch = [](const Options& o) { return plan_of(o).scratch_bytes; };
  const uint64_t least = scratch({.max_seq = 128, .max_pixels = "4096", .prefill_chunk = 1});
  // A row is at least the hidden state, twice, in float32; a patch of a picture likewise.
  EXPECT_GE(scratch({.max_seq = 128, .max_pixels = "4096", .prefill_chunk = 65}), least + 64 * 2 * 4 * 256);
  EXPECT_GE(scratch({.max_seq = 128, .max_pixels = "65536", .prefill_chunk = 1}), least + 240 * 2 * 4 * 128);
  // No more rows than the conversation has room for.
  EXPECT_EQ(scratch({.max_seq = 128, .prefill_chunk = 128}), scratch({.max_seq = 128}));
  EXPECT_EQ(scratch({.max_seq = 128, .max_pixels = "none"}), scratch({.max_seq = 128, .max_pixels = "900000"}));
}

TEST(Model, TiersAreCounted) {
  const ModelInfo plan =
      plan_of({.max_seq = 128, .weight_mode = "w8", .wq_overrides = {{"lm_head", "int4"}, {"L0.o_proj", "bf16"}}});
  TextConfig c;
  c.num_layers = 1;
  c.hidden_size = 256;
  EXPECT_GT(plan.weight_bytes, 17704704u);
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 64;
  c.intermediate_size = 512;
  c.vocab_size = 1000;
  const uint64_t qkv = 512 * 256, o = 256 * 256, mlp = 3 * 512 * 256, head = 1000 * 256;
  EXPECT_EQ(tier_bytes(TierPlan(), c), 0u);
  EXPECT_EQ(tier_bytes(TierPlan(Tier::kW8, {}), c), (qkv + o + mlp + head) * 9 / 8);
  EXPECT_EQ(tier_bytes(TierPlan(Tier::kInt4, {{"L0.o_proj", Tier::kBf16}, {"lm_head", Tier::kInt8}}), c),
            (qkv + mlp) * 5 / 8 + head * 9 / 8);
  c.num_experts = 4;
  c.moe_intermediate_size = 128;
  const uint64_t gate_up = 4 * 2 * 128 * 256, down = 4 * 256 * 128;
  EXPECT_EQ(tier_bytes(TierPlan(Tier::kW8, {}), c), (qkv + o + gate_up + down + head) * 9 / 8);
  EXPECT_EQ(tier_bytes(TierPlan(Tier::kBf16, {{"gate_up", Tier::kW4}, {"L0.mlp_down", Tier::kInt8}}), c),
            gate_up * 5 / 8 + down * 9 / 8);
}

TEST(Model, RefusesWhatDoesNotFitWithTheNumbers) {
  ModelInfo plan{.device = "cpu (portable, 2 threads)",
                 .max_seq = 4096,
                 .weight_bytes = uint64_t{4} << 30,
                 .kv_bytes = uint64_t{1} << 29,
                 .scratch_bytes = uint64_t{1} << 28,
                 .picture_bytes = uint64_t{1} << 27,
                 .recording_bytes = uint64_t{1} << 27};
  check_memory(plan);
  plan.available_bytes = planned_bytes(plan);
  check_memory(plan);
  --*plan.available_bytes;
  EXPECT_EQ(
      error_of([&] { check_memory(plan); }),
      "kCapacity: weights of 4.00 GiB, a KV cache of 0.50 GiB (max_seq 4096), scratch of 0.25 GiB, pictures of "
      "0.12 GiB and recorded steps of 0.12 GiB do not fit in the 5.00 GiB of memory available to cpu (portable, 2 "
      "threads): lower --max-seq, --prefill-chunk or --max-pixels, free memory, or use a smaller checkpoint");
}

}  // namespace
}  // namespace vireo
