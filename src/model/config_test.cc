// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <gtest/gtest.h>

#include <random>

#include "files/json.h"
#include "files/test_files.h"

namespace vireo {
namespace {

using std::string;

// The published 2B Instruct files, in the spelling of transformers 4.57.
const char* const kOfficial2B = R"({
  "architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 151655, "model_type": "qwen3_vl",
  "text_config": {"attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643, "dtype": "bfloat16",
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 6144, "max_position_embeddings": 262144, "model_type": "qwen3_vl_text",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": {"mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default"},
    "rope_theta": 5000000, "tie_word_embeddings": true, "use_cache": true, "vocab_size": 151936},
  "tie_word_embeddings": true, "transformers_version": "4.57.0.dev0", "video_token_id": 151656,
  "vision_config": {"deepstack_visual_indexes": [5, 11, 17], "depth": 24, "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 1024, "in_channels": 3, "initializer_range": 0.02, "intermediate_size": 4096,
    "model_type": "qwen3_vl", "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 2048,
    "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2},
  "vision_end_token_id": 151653, "vision_start_token_id": 151652})";

const char* const kGeneration = R"({"bos_token_id": 151643, "pad_token_id": 151643, "do_sample": true,
  "eos_token_id": [151645, 151643], "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.0, "temperature": 0.7,
  "transformers_version": "4.56.0"})";

class Config : public ::testing::Test {
 protected:
  Config() : json_(parse_json(kOfficial2B, "test")), generation_(parse_json(kGeneration, "test")) {}

  Json& at(const string& pointer) { return json_[Json::json_pointer(pointer)]; }
  void set(const string& pointer, const string& value) { at(pointer) = parse_json(value, "value"); }
  void erase(const string& parent, const string& key) { at(parent).erase(key); }
  ModelConfig load() {
    folder_.write("config.json", json_.dump());
    folder_.write("generation_config.json", generation_.dump());
    return load_model_config(folder_.path());
  }
  GenerationDefaults load_generation(const string& text) {
    folder_.write("generation_config.json", text);
    return load_generation_defaults(folder_.path());
  }
  // The error after one change to the official file.
  string error_with(const string& pointer, const string& value) {
    json_ = parse_json(kOfficial2B, "test");
    set(pointer, value);
    return error_of([&] { load(); });
  }
  string error_without(const string& parent, const string& key) {
    json_ = parse_json(kOfficial2B, "test");
    erase(parent, key);
    return error_of([&] { load(); });
  }
  void make_moe() {
    set("/model_type", "\"qwen3_vl_moe\"");
    set("/architectures/0", "\"Qwen3VLMoeForConditionalGeneration\"");
    set("/text_config/num_experts", "128");
    set("/text_config/num_experts_per_tok", "8");
    set("/text_config/moe_intermediate_size", "768");
    set("/text_config/decoder_sparse_step", "1");
    set("/text_config/mlp_only_layers", "[]");
    set("/text_config/norm_topk_prob", "true");
  }

  TempFolder folder_;
  Json json_;
  Json generation_;
};

// Expects an error text of kind kInput that names config.json and holds every given part.
#define EXPECT_REFUSED(error, ...)                                                                   \
  do {                                                                                               \
    const string refused = (error);                                                                  \
    for (const auto& part : std::initializer_list<string>{"kInput: ", "config.json", __VA_ARGS__}) { \
      EXPECT_PRED2(contains, refused, part);                                                         \
    }                                                                                                \
  } while (false)

TEST_F(Config, ReadsTheOfficial2B) {
  const ModelConfig c = load();
  EXPECT_EQ(c.model_type, "qwen3_vl");
  EXPECT_EQ(c.text.hidden_size, 2048);
  EXPECT_EQ(c.text.num_layers, 28);
  EXPECT_EQ(c.text.num_heads, 16);
  EXPECT_EQ(c.text.num_kv_heads, 8);
  EXPECT_EQ(c.text.head_dim, 128);
  EXPECT_EQ(c.text.q_size(), 2048);
  EXPECT_EQ(c.text.kv_size(), 1024);
  EXPECT_EQ(c.text.intermediate_size, 6144);
  EXPECT_EQ(c.text.vocab_size, 151936);
  EXPECT_EQ(c.text.max_position_embeddings, 262144);
  EXPECT_EQ(c.text.rms_norm_eps, 1e-6f);
  EXPECT_EQ(c.text.rope_theta, 5e6);
  EXPECT_EQ(c.text.mrope_section, (std::array<int, 3>{24, 20, 20}));
  EXPECT_EQ(c.text.num_experts, 0);
  EXPECT_TRUE(c.tied_head);
  EXPECT_EQ(c.vision.hidden_size, 1024);
  EXPECT_EQ(c.vision.depth, 24);
  EXPECT_EQ(c.vision.num_heads, 16);
  EXPECT_EQ(c.vision.head_dim(), 64);
  EXPECT_EQ(c.vision.intermediate_size, 4096);
  EXPECT_EQ(c.vision.out_hidden_size, 2048);
  EXPECT_EQ(c.vision.num_position_embeddings, 2304);
  EXPECT_EQ(c.vision.position_side, 48);
  EXPECT_EQ(c.vision.patch_dim(), 1536);
  EXPECT_EQ(c.vision.merge_unit(), 4);
  EXPECT_EQ(c.vision.rope_theta, 10000.0);
  EXPECT_EQ(c.vision.deepstack_layers, (std::vector<int>{5, 11, 17}));
  EXPECT_EQ(c.image_token, 151655);
  EXPECT_EQ(c.video_token, 151656);
  EXPECT_EQ(c.vision_start_token, 151652);
  EXPECT_EQ(c.vision_end_token, 151653);
  EXPECT_EQ(c.eos_tokens, (std::vector<int32_t>{151643, 151645}));
}

TEST_F(Config, ReadsTheSpellingOfTransformers5) {
  erase("/text_config", "rope_scaling");
  erase("/text_config", "rope_theta");
  set("/text_config/rope_parameters", R"({"mrope_interleaved": true, "mrope_section": [22, 21, 21],
    "rope_theta": 1000000, "rope_type": "default"})");
  set("/vision_config/rope_parameters", R"({"rope_theta": 20000.0, "rope_type": "axial"})");
  set("/vision_config/interpolation_mode", "\"bilinear\"");
  set("/vision_config/interpolation_align_corners", "true");
  set("/text_config/pad_token_id", "null");
  set("/text_config/sliding_window", "null");
  const ModelConfig c = load();
  EXPECT_EQ(c.text.rope_theta, 1e6);
  EXPECT_EQ(c.text.mrope_section, (std::array<int, 3>{22, 21, 21}));
  EXPECT_EQ(c.vision.rope_theta, 20000.0);
}

TEST_F(Config, ReadsTheTinyModel) {
  const ModelConfig c = load_model_config(VIREO_SOURCE_DIR "/models/tiny");
  EXPECT_EQ(c.text.hidden_size, 256);
  EXPECT_EQ(c.text.num_layers, 6);
  EXPECT_EQ(c.text.vocab_size, 1088);
  EXPECT_EQ(c.text.rope_theta, 5e6);
  EXPECT_EQ(c.vision.rope_theta, 1e4);
  EXPECT_EQ(c.vision.deepstack_layers, (std::vector<int>{1, 3, 4}));
  EXPECT_TRUE(c.tied_head);
  EXPECT_EQ(c.eos_tokens, (std::vector<int32_t>{1024, 1026}));
  EXPECT_FALSE(load_generation_defaults(VIREO_SOURCE_DIR "/models/tiny").do_sample);
}

TEST_F(Config, ReadsTheRandomDenseModel) {
  const ModelConfig c = load_model_config(VIREO_TEST_DATA "/goldens/random_dense/checkpoint");
  EXPECT_EQ(c.text.num_heads, 3);
  EXPECT_EQ(c.text.num_kv_heads, 1);
  EXPECT_EQ(c.text.intermediate_size, 304);
  EXPECT_EQ(c.vision.num_heads, 1);
  EXPECT_EQ(c.vision.head_dim(), 72);
  EXPECT_EQ(c.vision.position_side, 24);
  EXPECT_FALSE(c.tied_head);
}

TEST_F(Config, ReadsTheRandomMixtureOfExperts) {
  const ModelConfig c = load_model_config(VIREO_TEST_DATA "/goldens/random_moe/checkpoint");
  EXPECT_EQ(c.model_type, "qwen3_vl_moe");
  EXPECT_EQ(c.text.num_experts, 8);
  EXPECT_EQ(c.text.experts_per_token, 2);
  EXPECT_EQ(c.text.moe_intermediate_size, 48);
  EXPECT_TRUE(c.text.norm_topk_prob);
}

TEST_F(Config, ReadsExpertsUnderEitherName) {
  make_moe();
  EXPECT_EQ(load().text.num_experts, 128);
  set("/text_config/norm_topk_prob", "false");
  set("/text_config/num_local_experts", "128");
  EXPECT_FALSE(load().text.norm_topk_prob);
  erase("/text_config", "num_experts");
  EXPECT_EQ(load().text.num_experts, 128);
  erase("/text_config", "intermediate_size");
  EXPECT_EQ(load().text.intermediate_size, 0);
  set("/text_config/num_experts", "64");
  EXPECT_REFUSED(error_of([&] { load(); }), "'num_experts' and 'num_local_experts' differ");
}

TEST_F(Config, KnowsAMixtureByItsModelTypeAlone) {
  set("/text_config/num_experts", "128");
  EXPECT_EQ(load().text.num_experts, 0);
  make_moe();
  erase("/text_config", "num_experts");
  EXPECT_REFUSED(error_of([&] { load(); }), "'num_experts' is missing");
}

TEST_F(Config, RefusesOtherExpertLayouts) {
  make_moe();
  set("/text_config/decoder_sparse_step", "2");
  EXPECT_REFUSED(error_of([&] { load(); }), "'decoder_sparse_step' is not 1");
  set("/text_config/decoder_sparse_step", "1");
  set("/text_config/mlp_only_layers", "[0]");
  EXPECT_REFUSED(error_of([&] { load(); }), "'mlp_only_layers' is not empty");
  set("/text_config/mlp_only_layers", "[]");
  set("/text_config/num_experts_per_tok", "129");
  EXPECT_REFUSED(error_of([&] { load(); }), "'num_experts_per_tok' is 129, but must be an integer from 1 to 128");
  erase("/text_config", "moe_intermediate_size");
  set("/text_config/num_experts_per_tok", "8");
  EXPECT_REFUSED(error_of([&] { load(); }), "'moe_intermediate_size' is missing");
}

TEST_F(Config, TakesTheTyingFromTheTopLevelAlone) {
  erase("", "tie_word_embeddings");
  EXPECT_FALSE(load().tied_head);
}

TEST_F(Config, JoinsEosTokens) {
  set("/eos_token_id", "[7, 3]");
  set("/text_config/eos_token_id", "5");
  generation_["eos_token_id"] = 3;
  EXPECT_EQ(load().eos_tokens, (std::vector<int32_t>{3, 5, 7}));
  erase("", "eos_token_id");
  set("/text_config/eos_token_id", "null");
  EXPECT_EQ(load().eos_tokens, (std::vector<int32_t>{3}));
  generation_.erase("eos_token_id");
  EXPECT_REFUSED(error_of([&] { load(); }), "'eos_token_id' is given neither here");
  EXPECT_REFUSED(error_with("/text_config/eos_token_id", "151936"), "'eos_token_id' is 151936, but must be");
  EXPECT_REFUSED(error_with("/eos_token_id", "[-1]"), "'eos_token_id' is -1, but must be");
  EXPECT_REFUSED(error_with("/eos_token_id", "\"x\""), "'eos_token_id' is \"x\", but must be");
}

TEST_F(Config, TakesEosFromTheConfigWhenThereIsNoGenerationConfig) {
  folder_.write("config.json", kOfficial2B);
  EXPECT_EQ(load_model_config(folder_.path()).eos_tokens, (std::vector<int32_t>{151645}));
}

TEST_F(Config, RefusesFoldersWithoutAConfig) {
  EXPECT_ERROR(load_model_config(folder_.path()), "kNotFound: cannot open", "config.json: No such file");
  folder_.write("config.json", "{\"a\"");
  EXPECT_ERROR(load_model_config(folder_.path()), "kInput", "config.json is not valid JSON");
  folder_.write("config.json", "[]");
  EXPECT_ERROR(load_model_config(folder_.path()), "kInput", "'model_type' is ''");
}

TEST_F(Config, RefusesOtherModels) {
  EXPECT_REFUSED(error_with("/model_type", "\"qwen2_vl\""), "'model_type' is 'qwen2_vl'", "qwen3_vl, qwen3_vl_moe");
  EXPECT_REFUSED(error_without("", "model_type"), "'model_type' is ''");
  EXPECT_REFUSED(error_with("/model_type", "3"), "'model_type' is 3, but must be a string");
  EXPECT_REFUSED(error_with("/architectures", "[\"Qwen3VLForEmbedding\"]"), "'Qwen3VLForEmbedding'", "chat engine");
  EXPECT_REFUSED(error_with("/architectures", "[\"Qwen3VLEmbeddingForConditionalGeneration\"]"), "chat engine");
  EXPECT_REFUSED(error_with("/architectures", "[\"Qwen3VLModel\"]"), "'Qwen3VLModel'", "chat engine");
  EXPECT_REFUSED(error_with("/architectures", "[7]"), "chat engine");
}

TEST_F(Config, RefusesQuantisedWeights) {
  EXPECT_REFUSED(error_with("/quantization_config", R"({"quant_method": "fp8"})"), "quant_method 'fp8'", "BF16");
  EXPECT_REFUSED(error_with("/text_config/quantization_config", R"({"quant_method": "gptq"})"), "quant_method 'gptq'");
  EXPECT_REFUSED(error_with("/quantization_config", "[]"), "quant_method 'unnamed'");
  EXPECT_EQ(error_with("/quantization_config", "null"), "");
}

TEST_F(Config, ReadsWhatVireoQuantised) {
  EXPECT_FALSE(load().quantization);
  const string good = R"({"quant_method": "vireo", "format_version": 1, "group_size": 16, "keep_bf16": true,
    "folded": {"calibration": "some.jsonl", "conversations": 3, "alpha": {}},
    "tiers": {"gate_up": "w4", "L27.gate_up": "int8", "lm_head": "bf16"}})";
  set("/quantization_config", good);
  const Quantization q = load().quantization.value();
  EXPECT_TRUE(q.keeps_bf16);
  EXPECT_EQ(q.folded.value().calibration, "some.jsonl");
  EXPECT_EQ(q.folded.value().conversations, 3);
  EXPECT_EQ(q.plan().of(3, "gate_up"), Tier::kW4);
  EXPECT_EQ(q.plan().of(27, "gate_up"), Tier::kInt8);
  EXPECT_EQ(q.plan().of(-1, "lm_head"), Tier::kBf16);
  EXPECT_EQ(q.plan().of(0, "o_proj"), Tier::kBf16);

  const auto error_at = [&](const string& key, const string& value) {
    Json json = parse_json(good, "good");
    json[Json::json_pointer("/" + key)] = parse_json(value, "value");
    return error_with("/quantization_config", json.dump());
  };
  EXPECT_EQ(error_at("keep_bf16", "false"), "");
  EXPECT_REFUSED(error_at("quant_method", "\"vireo2\""), "quant_method 'vireo2'", "BF16");
  EXPECT_REFUSED(error_at("format_version", "2"), "quantization_config", "'format_version' is 2", "only 1 is built",
                 "vireo quantize");
  EXPECT_REFUSED(error_at("format_version", "\"1\""), "'format_version' is \"1\"", "integer");
  EXPECT_REFUSED(error_at("group_size", "32"), "'group_size' is 32", "only 16 is built");
  EXPECT_REFUSED(error_at("keep_bf16", "1"), "'keep_bf16' is 1");
  EXPECT_REFUSED(error_at("folded", "true"), "'folded' is 'true'", "vireo quantize");
  EXPECT_REFUSED(error_at("folded", "{}"), "folded: 'conversations' is missing");
  EXPECT_REFUSED(error_at("folded/conversations", "-1"), "'conversations' is -1");
  EXPECT_REFUSED(error_at("folded", R"({"conversations": 3})"), "folded: 'calibration' is missing", "vireo quantize");
  EXPECT_REFUSED(error_at("folded/calibration", "\"\""), "'calibration' is missing or empty");
  EXPECT_REFUSED(error_at("folded/calibration", "[]"), "'calibration' is a list");
  EXPECT_REFUSED(error_at("tiers", "[]"), "'tiers' is missing or not an object");
  for (const char* tier : {"\"w5\"", "\"NVFP4\"", "8", "null"}) {
    EXPECT_REFUSED(error_at("tiers/gate_up", tier), "'tiers' has gate_up as", "w8, w4, int8, int4, nvfp4");
  }
  for (const char* key : {"L28.gate_up", "L07.gate_up", "L0.lm_head", "nose"}) {
    EXPECT_REFUSED(error_at(string("tiers/") + key, "\"w8\""), "'tiers' names '" + string(key) + "'", "28 layers");
  }
}

TEST_F(Config, RefusesMissingSizes) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
                          "vocab_size", "max_position_embeddings", "intermediate_size"}) {
    EXPECT_REFUSED(error_without("/text_config", key), string(", text_config: '") + key + "' is missing");
  }
  for (const char* key :
       {"hidden_size", "depth", "num_heads", "intermediate_size", "out_hidden_size", "num_position_embeddings"}) {
    EXPECT_REFUSED(error_without("/vision_config", key), string(", vision_config: '") + key + "' is missing");
  }
  for (const char* key : {"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"}) {
    EXPECT_REFUSED(error_without("", key), string("'") + key + "' is missing");
  }
  EXPECT_REFUSED(error_without("", "text_config"), "'text_config' is missing or not an object");
  EXPECT_REFUSED(error_without("", "vision_config"), "'vision_config' is missing or not an object");
  EXPECT_REFUSED(error_with("/vision_config", "[]"), "'vision_config' is missing or not an object");
}

TEST_F(Config, RefusesAbsurdSizes) {
  EXPECT_REFUSED(error_with("/text_config/num_hidden_layers", "1025"), "'num_hidden_layers' is 1025", "from 1 to 1024");
  EXPECT_REFUSED(error_with("/text_config/num_hidden_layers", "0"), "'num_hidden_layers' is 0");
  EXPECT_REFUSED(error_with("/text_config/vocab_size", "16777217"), "'vocab_size' is 16777217");
  EXPECT_REFUSED(error_with("/text_config/hidden_size", "-2048"), "'hidden_size' is -2048");
  EXPECT_REFUSED(error_with("/text_config/hidden_size", "2048.0"), "'hidden_size' is 2048.0");
  EXPECT_REFUSED(error_with("/text_config/hidden_size", "true"), "'hidden_size' is true");
  EXPECT_REFUSED(error_with("/text_config/head_dim", "4098"), "'head_dim' is 4098");
  EXPECT_REFUSED(error_with("/text_config/rms_norm_eps", "0"), "'rms_norm_eps' is 0");
  EXPECT_REFUSED(error_with("/text_config/rope_theta", "-1"), "'rope_theta' is -1");
  EXPECT_REFUSED(error_with("/vision_config/depth", "4000000000"), "'depth' is 4000000000");
  EXPECT_REFUSED(error_with("/vision_config/patch_size", "0"), "'patch_size' is 0");
  EXPECT_REFUSED(error_with("/vision_config/spatial_merge_size", "17"), "'spatial_merge_size' is 17");
}

TEST_F(Config, RefusesHeadsThatDoNotDivide) {
  EXPECT_REFUSED(error_with("/text_config/num_key_value_heads", "3"),
                 "num_attention_heads 16 is no multiple of num_key_value_heads 3");
  EXPECT_REFUSED(error_with("/text_config/head_dim", "129"), "head_dim 129 is odd");
  set("/text_config/head_dim", "4096");
  set("/text_config/num_attention_heads", "4104");
  EXPECT_REFUSED(error_of([&] { load(); }), "'num_attention_heads' is 4104");
  EXPECT_REFUSED(error_with("/vision_config/num_heads", "15"), "hidden_size 1024 over num_heads 15");
  EXPECT_REFUSED(error_with("/vision_config/num_heads", "512"), "hidden_size 1024 over num_heads 512");
}

TEST_F(Config, RefusesActivationsAndBiases) {
  EXPECT_REFUSED(error_with("/text_config/hidden_act", "\"gelu\""), "'hidden_act' is 'gelu', but only 'silu' is built");
  EXPECT_REFUSED(error_with("/vision_config/hidden_act", "\"silu\""), "only 'gelu_pytorch_tanh' is built");
  EXPECT_REFUSED(error_with("/text_config/attention_bias", "true"), "'attention_bias' is true");
}

TEST_F(Config, RefusesOtherRotaryTypes) {
  EXPECT_REFUSED(error_with("/text_config/rope_scaling/rope_type", "\"yarn\""), "rope_scaling: 'rope_type' is 'yarn'",
                 "only 'default' is built");
  set("/text_config/rope_scaling", R"({"type": "linear", "mrope_section": [24, 20, 20]})");
  EXPECT_REFUSED(error_of([&] { load(); }), "'type' is 'linear'");
  EXPECT_REFUSED(error_with("/text_config/rope_scaling/mrope_interleaved", "false"), "'mrope_interleaved' is false");
  EXPECT_REFUSED(error_with("/vision_config/rope_parameters", R"({"rope_type": "yarn"})"), "'rope_type' is 'yarn'");
  EXPECT_REFUSED(error_with("/vision_config/rope_parameters", R"({"rope_theta": 0})"), "'rope_theta' is 0");
}

TEST_F(Config, RefusesBadMropeSections) {
  EXPECT_REFUSED(error_without("/text_config", "rope_scaling"), "'mrope_section' is missing");
  EXPECT_REFUSED(error_without("/text_config/rope_scaling", "mrope_section"), "'mrope_section' must be a list");
  EXPECT_REFUSED(error_with("/text_config/rope_scaling/mrope_section", "[24, 20]"), "has 2 numbers, but must have 3");
  EXPECT_REFUSED(error_with("/text_config/rope_scaling/mrope_section", "[24, 20, 10, 10]"),
                 "must be a list of at most 3");
  EXPECT_REFUSED(error_with("/text_config/rope_scaling/mrope_section", "[25, 20, 20]"), "adds up to 65");
  EXPECT_REFUSED(error_with("/text_config/rope_scaling/mrope_section", "[0, 22, 20]"), "asks for frequency 64");
  EXPECT_REFUSED(error_with("/text_config/rope_scaling/mrope_section", "[24, 20, -1]"), "'mrope_section' is -1");
  EXPECT_REFUSED(error_with("/text_config/rope_scaling/mrope_section", "[24, 20, \"x\"]"), "'mrope_section' is \"x\"");
  EXPECT_REFUSED(error_with("/text_config/head_dim", "64"), "'mrope_section'");
  EXPECT_EQ(error_with("/text_config/rope_scaling/mrope_section", "[22, 21, 21]"), "");
  EXPECT_EQ(error_with("/text_config/rope_scaling/mrope_section", "[64, 0, 0]"), "");
}

TEST_F(Config, RefusesBadVisionTowers) {
  EXPECT_REFUSED(error_with("/vision_config/num_position_embeddings", "2305"), "2305 is not the square");
  EXPECT_REFUSED(error_with("/vision_config/in_channels", "1"), "in_channels is 1");
  EXPECT_REFUSED(error_with("/vision_config/out_hidden_size", "2560"), "out_hidden_size 2560 differs",
                 "hidden_size 2048");
  EXPECT_REFUSED(error_with("/vision_config/interpolation_mode", "\"bicubic\""), "only 'bilinear' is built");
  EXPECT_REFUSED(error_with("/vision_config/interpolation_align_corners", "false"), "'interpolation_align_corners'");
  EXPECT_REFUSED(error_with("/vision_config/deepstack_visual_indexes", "[5, 5]"), "is not ascending at 5");
  EXPECT_REFUSED(error_with("/vision_config/deepstack_visual_indexes", "[11, 5]"), "is not ascending at 5");
  EXPECT_REFUSED(error_with("/vision_config/deepstack_visual_indexes", "[24]"),
                 "is 24, but must be an integer from 0 to 23");
  EXPECT_REFUSED(error_without("/vision_config", "deepstack_visual_indexes"),
                 "'deepstack_visual_indexes' must be a list");
  EXPECT_REFUSED(error_with("/text_config/num_hidden_layers", "2"),
                 "has 3 entries, but the language model only 2 layers");
  EXPECT_EQ(error_with("/vision_config/deepstack_visual_indexes", "[]"), "");
}

TEST_F(Config, RefusesTokensOutsideTheVocabularyOrShared) {
  EXPECT_REFUSED(error_with("/image_token_id", "151936"),
                 "'image_token_id' is 151936, but must be an integer from 0 to 151935");
  EXPECT_REFUSED(error_with("/video_token_id", "151655"),
                 "'video_token_id' is 151655, as another of the image tokens is");
}

TEST_F(Config, FlippedBytesGiveAnErrorOrAConfig) {
  const string good = json_.dump();
  std::mt19937 random(5);
  int loaded = 0;
  for (int i = 0; i < 2000; ++i) {
    string bytes = good;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    folder_.write("config.json", bytes);
    const string error =
        error_of([&] { loaded += static_cast<int>(load_model_config(folder_.path()).text.num_layers > 0); });
    EXPECT_TRUE(error.empty() || error.rfind("kInput: ", 0) == 0) << error;
  }
  EXPECT_GT(loaded, 20);
  EXPECT_LT(loaded, 1900);
}

TEST_F(Config, ReadsGenerationDefaults) {
  const GenerationDefaults d = load_generation(kGeneration);
  EXPECT_TRUE(d.do_sample);
  EXPECT_EQ(d.temperature, 0.7);
  EXPECT_EQ(d.top_p, 0.8);
  EXPECT_EQ(d.top_k, 20);
  EXPECT_EQ(d.repetition_penalty, 1.0);
}

TEST_F(Config, GenerationDefaultsWithoutAFile) {
  const GenerationDefaults d = load_generation_defaults(folder_.path());
  EXPECT_FALSE(d.do_sample);
  EXPECT_EQ(d.temperature, 1.0);
  EXPECT_EQ(d.top_p, 1.0);
  EXPECT_EQ(d.top_k, 0);
  EXPECT_EQ(load_generation(R"({"top_k": null})").top_k, 0);
}

TEST_F(Config, RefusesBadGenerationDefaults) {
  for (const char* text :
       {R"({"temperature": -1})", R"({"temperature": "hot"})", R"({"top_p": 1.5})", R"({"top_k": -1})",
        R"({"top_k": 2.5})", R"({"repetition_penalty": 0})", R"({"do_sample": 1})"}) {
    EXPECT_ERROR(load_generation(text), "kInput", "generation_config.json: '", "but must be");
  }
  EXPECT_ERROR(load_generation("{"), "kInput", "generation_config.json is not valid JSON");
}

}  // namespace
}  // namespace vireo
