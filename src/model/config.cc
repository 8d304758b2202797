// See config.h. Every value is checked against its range where it is read, and against the others where it is
// used with them. SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <set>
#include <system_error>

#include "files/json.h"
#include "files/quote.h"
#include "model/quantization.h"
#include "vireo/error.h"

namespace vireo {
namespace {

constexpr JsonLimits kJsonLimits = {.bytes = 4u << 20, .depth = 32};
// No published size comes near these; they keep every product of sizes far inside 63 bits.
constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 4096;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxPositions = int64_t{1} << 30;
constexpr int kMaxListedTokens = 256;

// A JSON object and its name in errors.
struct Section {
  const Json& json;
  std::string what;

  int64_t size(const char* key, int64_t max = kMaxSize) const { return get_int(json, key, what, 1, max); }
  int64_t size_or(const char* key, int64_t fallback, int64_t max = kMaxSize) const {
    return get_int_or(json, key, what, 1, max, fallback);
  }
  bool has(const char* key) const {
    const Json* value = find_key(json, key);
    return value && !value->is_null();
  }
  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(ErrorKind::kInput, fmt::format("{}: {}", what, reason));
  }
  void require(bool condition, const std::string& reason) const {
    if (!condition) refuse(reason);
  }
  void require_string(const char* key, const std::string& only) const {
    const std::string value = get_string_or(json, key, what, only);
    require(value == only, fmt::format("'{}' is {}, but only '{}' is built", key, in_quotes(value), only));
  }
};

Section subsection(const Section& parent, const char* key) {
  const Json* value = find_key(parent.json, key);
  if (!value || !value->is_object()) parent.refuse(fmt::format("'{}' is missing or not an object", key));
  return {*value, fmt::format("{}, {}", parent.what, key)};
}

std::vector<int64_t> int_list(const Section& section, const char* key, int64_t min, int64_t max, size_t max_count) {
  const Json* list = find_key(section.json, key);
  if (!list || !list->is_array() || list->size() > max_count) {
    section.refuse(fmt::format("'{}' must be a list of at most {} integers", key, max_count));
  }
  std::vector<int64_t> values;
  for (const Json& item : *list) {
    Json entry = Json::object();
    entry[key] = item;
    values.push_back(get_int(entry, key, section.what, min, max));
  }
  return values;
}

void refuse_other_models(const Section& top, const std::string& model_type) {
  if (const Json* names = find_key(top.json, "architectures"); names && names->is_array() && !names->empty()) {
    const std::string name = names->front().is_string() ? names->front().get<std::string>() : "";
    top.require(name.find("Embedding") == std::string::npos && name.find("Reranker") == std::string::npos &&
                    name.find("ForConditionalGeneration") != std::string::npos,
                fmt::format("'architectures' names {}, which does not generate text; Vireo is a chat engine and runs "
                            "Qwen3VLForConditionalGeneration and Qwen3VLMoeForConditionalGeneration",
                            in_quotes(name)));
  }
  top.require(model_type == "qwen3_vl" || model_type == "qwen3_vl_moe",
              fmt::format("'model_type' is {}; Vireo runs qwen3_vl, qwen3_vl_moe", in_quotes(model_type)));
}

void refuse_quantized(const Section& section) {
  if (!section.has("quantization_config")) return;
  const Json& config = *find_key(section.json, "quantization_config");
  const std::string method = get_string_or(config, "quant_method", section.what, "unnamed");
  section.refuse(
      fmt::format("'quantization_config' says that the weights are quantised (quant_method {}); Vireo reads "
                  "the BF16 checkpoint of this model, and what `vireo quantize` makes of it",
                  in_quotes(method)));
}

std::optional<Quantization> read_own_quantization(const Section& top, int64_t layers) {
  if (!top.has("quantization_config")) return std::nullopt;
  const Json& json = *find_key(top.json, "quantization_config");
  const std::string what = top.what + ", quantization_config";
  if (!json.is_object() || get_string_or(json, "quant_method", what, "") != kQuantMethod) refuse_quantized(top);
  return read_quantization(json, layers, what);
}

// The rotary settings of the language model: one object "rope_parameters", or "rope_scaling" and a loose
// rope_theta.
Section rope_section(const Section& text) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (text.has(key)) return subsection(text, key);
  }
  text.refuse("'mrope_section' is missing: there is neither 'rope_parameters' nor 'rope_scaling'");
}

void read_mrope_section(const Section& rope, TextConfig& config) {
  const std::vector<int64_t> counts = int_list(rope, "mrope_section", 0, config.head_dim / 2, 3);
  rope.require(counts.size() == 3, fmt::format("'mrope_section' has {} numbers, but must have 3", counts.size()));
  int64_t sum = 0;
  for (size_t axis = 0; axis < 3; ++axis) {
    config.mrope_section[axis] = static_cast<int>(counts[axis]);
    sum += counts[axis];
    // Height and width take every third frequency from 1 and 2 on; time takes the rest.
    const int64_t last = counts[axis] == 0 || axis == 0 ? 0 : static_cast<int64_t>(axis) + 3 * (counts[axis] - 1);
    rope.require(last < config.head_dim / 2,
                 fmt::format("'mrope_section' asks for frequency {}, but a head_dim of {} has {}", last,
                             config.head_dim, config.head_dim / 2));
  }
  rope.require(sum <= config.head_dim / 2, fmt::format("'mrope_section' adds up to {}, but a head_dim of {} has {} "
                                                       "frequencies",
                                                       sum, config.head_dim, config.head_dim / 2));
}

void read_rope(const Section& text, TextConfig& config) {
  const Section rope = rope_section(text);
  const char* type_key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = get_string_or(rope.json, type_key, rope.what, "default");
  rope.require(type == "default", fmt::format("'{}' is {}, but only 'default' is built; remove the scaling and keep to "
                                              "max_position_embeddings",
                                              type_key, in_quotes(type)));
  rope.require(get_bool_or(rope.json, "mrope_interleaved", rope.what, true),
               "'mrope_interleaved' is false, but only the interleaved form is built");
  read_mrope_section(rope, config);
  const Section& theta = rope.has("rope_theta") ? rope : text;
  config.rope_theta = get_double_or(theta.json, "rope_theta", theta.what, config.rope_theta);
  theta.require(config.rope_theta >= 1 && config.rope_theta <= 1e15,
                fmt::format("'rope_theta' is {}, but must be from 1 to 1e15", config.rope_theta));
}

void read_experts(const Section& text, TextConfig& config) {
  const char* key = text.has("num_local_experts") ? "num_local_experts" : "num_experts";
  config.num_experts = text.size(key, kMaxExperts);
  text.require(text.size_or("num_experts", config.num_experts, kMaxExperts) == config.num_experts,
               "'num_experts' and 'num_local_experts' differ");
  config.experts_per_token = text.size("num_experts_per_tok", config.num_experts);
  config.moe_intermediate_size = text.size("moe_intermediate_size");
  config.norm_topk_prob = get_bool_or(text.json, "norm_topk_prob", text.what, true);
  text.require(text.size_or("decoder_sparse_step", 1) == 1,
               "'decoder_sparse_step' is not 1, but only models with experts in every layer are built");
  const bool all_sparse =
      !text.has("mlp_only_layers") || int_list(text, "mlp_only_layers", 0, kMaxLayers, kMaxLayers).empty();
  text.require(all_sparse, "'mlp_only_layers' is not empty, but only models with experts in every layer are built");
}

void check_heads(const Section& text, const TextConfig& c) {
  text.require(
      c.num_heads % c.num_kv_heads == 0,
      fmt::format("num_attention_heads {} is no multiple of num_key_value_heads {}", c.num_heads, c.num_kv_heads));
  text.require(c.head_dim % 2 == 0, fmt::format("head_dim {} is odd", c.head_dim));
  text.require(c.q_size() <= kMaxSize, fmt::format("num_attention_heads {} times head_dim {} is more than {}",
                                                   c.num_heads, c.head_dim, kMaxSize));
}

TextConfig read_text(const Section& text, bool is_moe) {
  TextConfig c;
  text.require_string("hidden_act", "silu");
  text.require(!get_bool_or(text.json, "attention_bias", text.what, false),
               "'attention_bias' is true, but attention with biases is not built");
  c.hidden_size = text.size("hidden_size");
  c.num_layers = text.size("num_hidden_layers", kMaxLayers);
  c.num_heads = text.size("num_attention_heads", kMaxHeads);
  c.num_kv_heads = text.size("num_key_value_heads", kMaxHeads);
  c.head_dim = text.size("head_dim", kMaxHeadDim);
  c.vocab_size = text.size("vocab_size");
  c.max_position_embeddings = text.size("max_position_embeddings", kMaxPositions);
  c.intermediate_size = is_moe ? text.size_or("intermediate_size", 0) : text.size("intermediate_size");
  const double eps = get_double_or(text.json, "rms_norm_eps", text.what, c.rms_norm_eps);
  text.require(eps > 0 && eps < 1, fmt::format("'rms_norm_eps' is {}, but must be between 0 and 1", eps));
  c.rms_norm_eps = static_cast<float>(eps);
  check_heads(text, c);
  read_rope(text, c);
  if (is_moe) read_experts(text, c);
  return c;
}

void read_vision_rope(const Section& vision, VisionConfig& c) {
  if (!vision.has("rope_parameters")) return;
  const Section rope = subsection(vision, "rope_parameters");
  const std::string type = get_string_or(rope.json, "rope_type", rope.what, "axial");
  rope.require(type == "axial" || type == "default",
               fmt::format("'rope_type' is {}, but only 'axial' is built", in_quotes(type)));
  c.rope_theta = get_double_or(rope.json, "rope_theta", rope.what, c.rope_theta);
  rope.require(c.rope_theta >= 1 && c.rope_theta <= 1e15,
               fmt::format("'rope_theta' is {}, but must be from 1 to 1e15", c.rope_theta));
}

void read_deepstack(const Section& vision, VisionConfig& c) {
  for (int64_t layer : int_list(vision, "deepstack_visual_indexes", 0, c.depth - 1, kMaxLayers)) {
    vision.require(c.deepstack_layers.empty() || c.deepstack_layers.back() < layer,
                   fmt::format("'deepstack_visual_indexes' is not ascending at {}", layer));
    c.deepstack_layers.push_back(static_cast<int>(layer));
  }
}

void check_vision(const Section& vision, VisionConfig& c) {
  vision.require(c.hidden_size % c.num_heads == 0 && c.head_dim() % 4 == 0,
                 fmt::format("hidden_size {} over num_heads {} must be a head size that is a multiple of 4",
                             c.hidden_size, c.num_heads));
  c.position_side = std::llround(std::sqrt(static_cast<double>(c.num_position_embeddings)));
  vision.require(
      c.position_side * c.position_side == c.num_position_embeddings,
      fmt::format("num_position_embeddings {} is not the square of a table side", c.num_position_embeddings));
  vision.require(c.in_channels == 3, fmt::format("in_channels is {}, but pictures have 3", c.in_channels));
}

VisionConfig read_vision(const Section& vision) {
  VisionConfig c;
  vision.require_string("hidden_act", "gelu_pytorch_tanh");
  vision.require_string("interpolation_mode", "bilinear");
  vision.require(get_bool_or(vision.json, "interpolation_align_corners", vision.what, true),
                 "'interpolation_align_corners' is false, but only true is built");
  c.hidden_size = vision.size("hidden_size");
  c.depth = vision.size("depth", kMaxLayers);
  c.num_heads = vision.size("num_heads", kMaxHeads);
  c.intermediate_size = vision.size("intermediate_size");
  c.out_hidden_size = vision.size("out_hidden_size");
  c.num_position_embeddings = vision.size("num_position_embeddings");
  c.patch_size = vision.size_or("patch_size", c.patch_size, 256);
  c.temporal_patch_size = vision.size_or("temporal_patch_size", c.temporal_patch_size, 16);
  c.merge_size = vision.size_or("spatial_merge_size", c.merge_size, 16);
  c.in_channels = vision.size_or("in_channels", c.in_channels);
  read_vision_rope(vision, c);
  read_deepstack(vision, c);
  check_vision(vision, c);
  return c;
}

void add_eos(const Section& section, int64_t vocab_size, std::set<int32_t>& eos) {
  if (!section.has("eos_token_id")) return;
  const bool is_list = find_key(section.json, "eos_token_id")->is_array();
  const std::vector<int64_t> ids =
      is_list ? int_list(section, "eos_token_id", 0, vocab_size - 1, kMaxListedTokens)
              : std::vector<int64_t>{get_int(section.json, "eos_token_id", section.what, 0, vocab_size - 1)};
  for (int64_t id : ids) eos.insert(static_cast<int32_t>(id));
}

// generation_config.json, or an empty object when the folder has none.
Json read_generation_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "generation_config.json";
  std::error_code ignored;
  const bool present = std::filesystem::exists(path, ignored) || std::filesystem::is_symlink(path, ignored);
  return present ? read_json(path, kJsonLimits) : Json::object();
}

void read_tokens(const Section& top, ModelConfig& config) {
  std::set<int32_t> seen;
  const auto token = [&](const char* key) {
    const auto id = static_cast<int32_t>(get_int(top.json, key, top.what, 0, config.text.vocab_size - 1));
    top.require(seen.insert(id).second, fmt::format("'{}' is {}, as another of the image tokens is", key, id));
    return id;
  };
  config.image_token = token("image_token_id");
  config.video_token = token("video_token_id");
  config.vision_start_token = token("vision_start_token_id");
  config.vision_end_token = token("vision_end_token_id");
}

void check_towers(const Section& top, const ModelConfig& config) {
  top.require(config.vision.out_hidden_size == config.text.hidden_size,
              fmt::format("vision_config's out_hidden_size {} differs from text_config's hidden_size {}",
                          config.vision.out_hidden_size, config.text.hidden_size));
  top.require(
      static_cast<int64_t>(config.vision.deepstack_layers.size()) <= config.text.num_layers,
      fmt::format("vision_config's deepstack_visual_indexes has {} entries, but the language model only {} layers",
                  config.vision.deepstack_layers.size(), config.text.num_layers));
}

double number_between(const Section& section, const char* key, double fallback, double min, double max) {
  const double value = get_double_or(section.json, key, section.what, fallback);
  section.require(value >= min && value <= max,
                  fmt::format("'{}' is {}, but must be from {} to {}", key, value, min, max));
  return value;
}

}  // namespace

ModelConfig load_model_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const Json json = read_json(path, kJsonLimits);
  const Section top{json, path_text(path)};
  ModelConfig config;
  config.model_type = get_string_or(json, "model_type", top.what, "");
  refuse_other_models(top, config.model_type);
  const Section text = subsection(top, "text_config");
  refuse_quantized(text);
  config.text = read_text(text, config.model_type == "qwen3_vl_moe");
  config.quantization = read_own_quantization(top, config.text.num_layers);
  config.vision = read_vision(subsection(top, "vision_config"));
  config.tied_head = get_bool_or(json, "tie_word_embeddings", top.what, false);
  read_tokens(top, config);
  check_towers(top, config);

  const Json generation_json = read_generation_config(folder);
  const Section generation{generation_json, path_text(folder / "generation_config.json")};
  std::set<int32_t> eos;
  for (const Section& section : {top, text, generation}) add_eos(section, config.text.vocab_size, eos);
  top.require(!eos.empty(), "'eos_token_id' is given neither here nor in text_config nor in generation_config.json");
  config.eos_tokens.assign(eos.begin(), eos.end());
  return config;
}

GenerationDefaults load_generation_defaults(const std::filesystem::path& folder) {
  const Json json = read_generation_config(folder);
  const Section section{json, path_text(folder / "generation_config.json")};
  GenerationDefaults d;
  d.do_sample = get_bool_or(json, "do_sample", section.what, d.do_sample);
  d.temperature = number_between(section, "temperature", d.temperature, 0, 100);
  d.top_p = number_between(section, "top_p", d.top_p, 0, 1);
  d.top_k = static_cast<int>(get_int_or(json, "top_k", section.what, 0, kMaxSize, d.top_k));
  d.repetition_penalty = number_between(section, "repetition_penalty", d.repetition_penalty, 0.01, 100);
  return d;
}

}  // namespace vireo
