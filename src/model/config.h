// All sizes of a Qwen3-VL model, from config.json in the spellings of transformers 4.57 and 5.x, and what
// generation_config.json says. Nothing numeric about a model is known anywhere else.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ops/tier.h"

namespace vireo {

struct TextConfig {
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;  // dense layers
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  double rope_theta = 5e6;
  std::array<int, 3> mrope_section = {24, 20, 20};
  // Mixture of experts; num_experts is 0 for a dense model.
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t moe_intermediate_size = 0;
  bool norm_topk_prob = true;

  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
};

struct VisionConfig {
  int64_t hidden_size = 0;
  int64_t depth = 0;
  int64_t num_heads = 0;
  int64_t intermediate_size = 0;
  int64_t out_hidden_size = 0;
  int64_t num_position_embeddings = 0;  // a square table
  int64_t position_side = 0;            // its side
  int64_t patch_size = 16;
  int64_t temporal_patch_size = 2;
  int64_t merge_size = 2;
  int64_t in_channels = 3;
  double rope_theta = 10000.0;
  std::vector<int> deepstack_layers;  // block indices, ascending

  int64_t head_dim() const { return hidden_size / num_heads; }
  int64_t patch_dim() const { return in_channels * temporal_patch_size * patch_size * patch_size; }
  int64_t merge_unit() const { return merge_size * merge_size; }
};

// By what a checkpoint was calibrated.
struct Folded {
  std::string calibration;  // a file's name
  int64_t conversations = 0;
};

// What a checkpoint that Vireo quantised has in which tier.
struct Quantization {
  std::map<std::string, Tier> tiers;  // by projection, or by L<layer>.<projection>, which goes first
  bool keeps_bf16 = false;            // beside the codes
  bool experts_out_in = false;        // stacked experts in BF16 are [E, out, in]
  std::optional<Folded> folded;

  TierPlan plan() const { return {Tier::kBf16, tiers}; }
};

struct ModelConfig {
  std::string model_type;  // qwen3_vl or qwen3_vl_moe
  TextConfig text;
  VisionConfig vision;
  bool tied_head = false;  // from the top level alone
  std::optional<Quantization> quantization;
  int32_t image_token = 0;
  int32_t video_token = 0;
  int32_t vision_start_token = 0;
  int32_t vision_end_token = 0;
  std::vector<int32_t> eos_tokens;  // of config.json and generation_config.json together, ascending
};

// Sampling defaults of generation_config.json.
struct GenerationDefaults {
  bool do_sample = false;
  double temperature = 1.0;
  double top_p = 1.0;
  int top_k = 0;
  double repetition_penalty = 1.0;
};

// Throws Error naming the file, the key and both values: a missing config, an unknown model_type (with the
// list of known ones), a quantization_config that is not Vireo's own, head_dim or mrope_section absent in both spellings, rope types
// that are not built, sizes that contradict each other or are absurd.
ModelConfig load_model_config(const std::filesystem::path& folder);
GenerationDefaults load_generation_defaults(const std::filesystem::path& folder);

}  // namespace vireo
