// SPDX-License-Identifier: Apache-2.0
#include "engine/published_files.h"

#include <nlohmann/json.hpp>

namespace vireo {
namespace {

using Json = nlohmann::json;  // keys in alphabetical order, as the library that wrote the published files has them

constexpr char kVersion[] = "4.57.0";

bool is_moe(const ModelConfig& config) {
  return config.text.num_experts > 0;
}

std::string file_text(const Json& json) {
  return json.dump(2) + "\n";
}

void add_experts(Json& text, const TextConfig& t) {
  text["decoder_sparse_step"] = 1;
  text["mlp_only_layers"] = Json::array();
  text["moe_intermediate_size"] = t.moe_intermediate_size;
  text["norm_topk_prob"] = t.norm_topk_prob;
  text["num_experts"] = t.num_experts;
  text["num_experts_per_tok"] = t.experts_per_token;
}

Json text_config(const ModelConfig& config) {
  const TextConfig& t = config.text;
  const Json rope = {{"mrope_interleaved", true}, {"mrope_section", t.mrope_section}, {"rope_type", "default"}};
  Json text = {{"attention_bias", false},
               {"attention_dropout", 0.0},
               {"bos_token_id", config.eos_tokens.front()},
               {"dtype", "bfloat16"},
               {"eos_token_id", config.eos_tokens.back()},
               {"head_dim", t.head_dim},
               {"hidden_act", "silu"},
               {"hidden_size", t.hidden_size},
               {"initializer_range", 0.02},
               {"intermediate_size", t.intermediate_size},
               {"max_position_embeddings", t.max_position_embeddings},
               {"model_type", config.model_type + "_text"},
               {"num_attention_heads", t.num_heads},
               {"num_hidden_layers", t.num_layers},
               {"num_key_value_heads", t.num_kv_heads},
               {"rms_norm_eps", 1e-6},
               {"rope_scaling", rope},
               {"rope_theta", static_cast<int64_t>(t.rope_theta)},
               {"use_cache", true},
               {"vocab_size", t.vocab_size}};
  if (config.tied_head) text["tie_word_embeddings"] = true;
  if (is_moe(config)) add_experts(text, t);
  return text;
}

Json vision_config(const ModelConfig& config) {
  const VisionConfig& v = config.vision;
  return {{"deepstack_visual_indexes", v.deepstack_layers},
          {"depth", v.depth},
          {"hidden_act", "gelu_pytorch_tanh"},
          {"hidden_size", v.hidden_size},
          {"in_channels", v.in_channels},
          {"initializer_range", 0.02},
          {"intermediate_size", v.intermediate_size},
          {"model_type", config.model_type},
          {"num_heads", v.num_heads},
          {"num_position_embeddings", v.num_position_embeddings},
          {"out_hidden_size", v.out_hidden_size},
          {"patch_size", v.patch_size},
          {"spatial_merge_size", v.merge_size},
          {"temporal_patch_size", v.temporal_patch_size}};
}

Json preprocessor(const VisionConfig& v, int64_t min_pixels, int64_t max_pixels) {
  const Json halves = {0.5, 0.5, 0.5};
  return {{"size", {{"longest_edge", max_pixels}, {"shortest_edge", min_pixels}}},
          {"patch_size", v.patch_size},
          {"temporal_patch_size", v.temporal_patch_size},
          {"merge_size", v.merge_size},
          {"image_mean", halves},
          {"image_std", halves},
          {"processor_class", "Qwen3VLProcessor"}};
}

}  // namespace

std::string published_config_json(const ModelConfig& config) {
  const char* architecture = is_moe(config) ? "Qwen3VLMoeForConditionalGeneration" : "Qwen3VLForConditionalGeneration";
  return file_text({{"architectures", Json::array({architecture})},
                    {"image_token_id", config.image_token},
                    {"model_type", config.model_type},
                    {"text_config", text_config(config)},
                    {"tie_word_embeddings", config.tied_head},
                    {"transformers_version", kVersion},
                    {"video_token_id", config.video_token},
                    {"vision_config", vision_config(config)},
                    {"vision_end_token_id", config.vision_end_token},
                    {"vision_start_token_id", config.vision_start_token}});
}

std::string published_generation_config_json(const ModelConfig& config) {
  const auto end_of_text = config.eos_tokens.front(), end_of_turn = config.eos_tokens.back();
  return file_text({{"bos_token_id", end_of_text},
                    {"do_sample", true},
                    {"eos_token_id", Json::array({end_of_turn, end_of_text})},
                    {"pad_token_id", end_of_text},
                    {"repetition_penalty", 1.0},
                    {"temperature", 0.7},
                    {"top_k", 20},
                    {"top_p", 0.8},
                    {"transformers_version", "4.56.0"}});
}

std::string published_preprocessor_config_json(const VisionConfig& vision) {
  Json json = preprocessor(vision, 65536, 16777216);
  json["image_processor_type"] = "Qwen2VLImageProcessorFast";
  return file_text(json);
}

std::string published_video_preprocessor_config_json(const VisionConfig& vision) {
  Json json = preprocessor(vision, 4096, 25165824);
  json["video_processor_type"] = "Qwen3VLVideoProcessor";
  return file_text(json);
}

}  // namespace vireo
