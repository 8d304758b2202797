// SPDX-License-Identifier: Apache-2.0
#include "engine/published_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "vireo/error.h"

namespace vireo {
namespace {

struct Size {
  const char* name;
  int64_t hidden, layers, heads, kv_heads, intermediate, expert_intermediate;
  bool tied, small_tower;
};

constexpr Size kSizes[] = {
    {"2b", 2048, 28, 16, 8, 6144, 0, true, true},          {"4b", 2560, 36, 32, 8, 9728, 0, true, true},
    {"8b", 4096, 36, 32, 8, 12288, 0, false, false},       {"32b", 5120, 64, 64, 8, 25600, 0, false, false},
    {"30b-a3b", 2048, 48, 32, 4, 6144, 768, false, false}, {"235b-a22b", 4096, 94, 64, 4, 12288, 1536, false, false},
};

const Size& find_size(const std::string& name) {
  std::string known;
  for (const Size& size : kSizes) {
    if (size.name == name) return size;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", size.name);
  }
  throw Error(ErrorKind::kUsage, fmt::format("--size '{}' is none of {}", name, known));
}

TextConfig text_config(const Size& size) {
  TextConfig t;
  t.hidden_size = size.hidden;
  t.num_layers = size.layers;
  t.num_heads = size.heads;
  t.num_kv_heads = size.kv_heads;
  t.head_dim = 128;
  t.intermediate_size = size.intermediate;
  t.vocab_size = 151936;
  t.max_position_embeddings = 262144;
  t.moe_intermediate_size = size.expert_intermediate;
  t.num_experts = size.expert_intermediate ? 128 : 0;
  t.experts_per_token = size.expert_intermediate ? 8 : 0;
  return t;
}

VisionConfig vision_config(const Size& size) {
  VisionConfig v;
  v.hidden_size = size.small_tower ? 1024 : 1152;
  v.depth = size.small_tower ? 24 : 27;
  v.num_heads = 16;
  v.intermediate_size = size.small_tower ? 4096 : 4304;
  v.out_hidden_size = size.hidden;
  v.position_side = 48;
  v.num_position_embeddings = v.position_side * v.position_side;
  v.deepstack_layers = size.small_tower ? std::vector<int>{5, 11, 17} : std::vector<int>{8, 16, 24};
  return v;
}

void cut(const char* option, int wanted, int64_t& have) {
  if (wanted < 0 || wanted > have) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{} {} is outside 1 to {}, which is what this size has", option, wanted, have));
  }
  if (wanted > 0) have = wanted;
}

// Each feeds the language model layer of its number, so there cannot be more of them than layers; in a cut tower they are
// spread evenly.
void fit_deepstack(ModelConfig& config, bool is_cut) {
  std::vector<int>& taps = config.vision.deepstack_layers;
  const int64_t depth = config.vision.depth;
  const int64_t count = std::min({static_cast<int64_t>(taps.size()), config.text.num_layers, depth});
  taps.resize(static_cast<size_t>(count));
  for (int64_t i = 0; is_cut && i < count; ++i) {
    taps[static_cast<size_t>(i)] = static_cast<int>((i + 1) * depth / (count + 1));
  }
}

// Collects tensors under a prefix.
class Names {
 public:
  Names(std::vector<TensorShape>& out, std::string prefix) : out_(out), prefix_(std::move(prefix)) {}
  Names under(const std::string& name) const { return {out_, prefix_ + name}; }
  void add(const std::string& name, std::vector<int64_t> shape) const {
    out_.push_back({prefix_ + name, std::move(shape)});
  }
  void add_biased(const std::string& name, std::vector<int64_t> shape) const {
    const int64_t rows = shape[0];
    add(name + ".weight", std::move(shape));
    add(name + ".bias", {rows});
  }

 private:
  std::vector<TensorShape>& out_;
  std::string prefix_;
};

void add_experts(const Names& mlp, const TextConfig& t) {
  mlp.add("gate.weight", {t.num_experts, t.hidden_size});
  mlp.add("experts.gate_up_proj", {t.num_experts, t.hidden_size, 2 * t.moe_intermediate_size});
  mlp.add("experts.down_proj", {t.num_experts, t.moe_intermediate_size, t.hidden_size});
}

void add_mlp(const Names& mlp, const TextConfig& t) {
  mlp.add("gate_proj.weight", {t.intermediate_size, t.hidden_size});
  mlp.add("up_proj.weight", {t.intermediate_size, t.hidden_size});
  mlp.add("down_proj.weight", {t.hidden_size, t.intermediate_size});
}

void add_layer(const Names& layer, const TextConfig& t) {
  layer.add("input_layernorm.weight", {t.hidden_size});
  layer.add("self_attn.q_proj.weight", {t.q_size(), t.hidden_size});
  layer.add("self_attn.k_proj.weight", {t.kv_size(), t.hidden_size});
  layer.add("self_attn.v_proj.weight", {t.kv_size(), t.hidden_size});
  layer.add("self_attn.o_proj.weight", {t.hidden_size, t.q_size()});
  layer.add("self_attn.q_norm.weight", {t.head_dim});
  layer.add("self_attn.k_norm.weight", {t.head_dim});
  layer.add("post_attention_layernorm.weight", {t.hidden_size});
  t.num_experts > 0 ? add_experts(layer.under("mlp."), t) : add_mlp(layer.under("mlp."), t);
}

void add_text(const Names& names, const ModelConfig& config) {
  const TextConfig& t = config.text;
  const Names text = names.under("model.language_model.");
  text.add("embed_tokens.weight", {t.vocab_size, t.hidden_size});
  for (int64_t i = 0; i < t.num_layers; ++i) add_layer(text.under(fmt::format("layers.{}.", i)), t);
  text.add("norm.weight", {t.hidden_size});
  if (!config.tied_head) names.add("lm_head.weight", {t.vocab_size, t.hidden_size});
}

void add_block(const Names& block, const VisionConfig& v) {
  block.add_biased("norm1", {v.hidden_size});
  block.add_biased("attn.qkv", {3 * v.hidden_size, v.hidden_size});
  block.add_biased("attn.proj", {v.hidden_size, v.hidden_size});
  block.add_biased("norm2", {v.hidden_size});
  block.add_biased("mlp.linear_fc1", {v.intermediate_size, v.hidden_size});
  block.add_biased("mlp.linear_fc2", {v.hidden_size, v.intermediate_size});
}

void add_merger(const Names& merger, const VisionConfig& v, int64_t norm_size) {
  const int64_t wide = v.hidden_size * v.merge_unit();
  merger.add_biased("norm", {norm_size});
  merger.add_biased("linear_fc1", {wide, wide});
  merger.add_biased("linear_fc2", {v.out_hidden_size, wide});
}

void add_vision(const Names& vision, const VisionConfig& v) {
  vision.add_biased("patch_embed.proj",
                    {v.hidden_size, v.in_channels, v.temporal_patch_size, v.patch_size, v.patch_size});
  vision.add("pos_embed.weight", {v.num_position_embeddings, v.hidden_size});
  for (int64_t i = 0; i < v.depth; ++i) add_block(vision.under(fmt::format("blocks.{}.", i)), v);
  add_merger(vision.under("merger."), v, v.hidden_size);
  for (size_t i = 0; i < v.deepstack_layers.size(); ++i) {
    add_merger(vision.under(fmt::format("deepstack_merger_list.{}.", i)), v, v.hidden_size * v.merge_unit());
  }
}

}  // namespace

ModelConfig published_config(const std::string& size, int layers, int vision_depth) {
  const Size& published = find_size(size);
  ModelConfig config;
  config.model_type = published.expert_intermediate ? "qwen3_vl_moe" : "qwen3_vl";
  config.text = text_config(published);
  config.vision = vision_config(published);
  config.tied_head = published.tied;
  config.image_token = 151655;
  config.video_token = 151656;
  config.vision_start_token = 151652;
  config.vision_end_token = 151653;
  config.eos_tokens = {151643, 151645};
  const int64_t full_depth = config.vision.depth;
  cut("--layers", layers, config.text.num_layers);
  cut("--vision-depth", vision_depth, config.vision.depth);
  fit_deepstack(config, config.vision.depth < full_depth);
  return config;
}

int64_t TensorShape::size() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::vector<TensorShape> published_tensors(const ModelConfig& config) {
  std::vector<TensorShape> out;
  const Names names(out, "");
  add_text(names, config);
  add_vision(names.under("model.visual."), config.vision);
  return out;
}

}  // namespace vireo
