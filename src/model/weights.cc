// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <fmt/format.h>

#include "base/check.h"
#include "model/expert_rows.h"
#include "vireo/error.h"

namespace vireo {
namespace {

// Places tensors by name below a prefix.
class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend, const LoadProgress& progress,
         const TierPlan& tiers, ModelWeights& weights)
      : checkpoint_(checkpoint),
        config_(config),
        backend_(backend),
        progress_(progress),
        tiers_(tiers),
        weights_(weights) {}

  const HostTensor& get(const std::string& name, const std::vector<int64_t>& shape) {
    const HostTensor& t = checkpoint_.get(name, shape);
    note(t);
    return t;
  }

  Norm norm(const std::string& prefix, int64_t size, float eps, bool with_bias) {
    Norm n;
    n.eps = eps;
    n.weight = vector(prefix + ".weight", size);
    if (with_bias) n.bias = vector(prefix + ".bias", size);
    return n;
  }

  LinearPtr linear(const std::string& prefix, int64_t out, int64_t in, bool with_bias, const Role& role) {
    std::vector<HostTensor> biases;
    if (with_bias) biases.push_back(get(prefix + ".bias", {out}));
    return backend_.place({get(prefix + ".weight", {out, in})}, biases, role);
  }

  LinearPtr projection(const Projection& p) {
    if (p.experts > 0) return experts(p);
    Role role = role_of(p);
    std::vector<HostTensor> rows;
    for (const ProjectionPart& part : parts_of(p, config_)) {
      const std::vector<int64_t> shape = {part.out, part.in};
      rows.push_back(part.has_rows ? get(part.rows, shape) : HostTensor{part.rows, DType::kBF16, shape});
      if (reads_codes(part, role)) role.coded.push_back(coded(part)[0]);
    }
    return backend_.place(rows, {}, role);
  }

  Tensor table(const std::string& name, int64_t rows, int64_t cols) {
    weights_.memory.push_back(backend_.place_table(get(name, {rows, cols})));
    return weights_.memory.back().view;
  }

  bool has(const std::string& name) const { return checkpoint_.find(name) != nullptr; }
  const HostTensor* find(const std::string& name) const { return checkpoint_.find(name); }
  Backend& backend() { return backend_; }
  ModelWeights& weights() { return weights_; }

  void note(const HostTensor& t) {
    done_ += t.bytes();
    if (progress_) progress_(done_, checkpoint_.tensor_bytes());
  }

 private:
  Role role_of(const Projection& p) const {
    Role role{p.layer, p.name, tiers_.of(p.layer, p.name)};
    role.codes_alone = has_codes_alone(tiers_, p, config_);
    return role;
  }

  static bool reads_codes(const ProjectionPart& part, const Role& role) {
    return part.tier != Tier::kBf16 && (part.tier == role.tier || !part.has_rows);
  }

  LinearPtr experts(const Projection& p) {
    Role role = role_of(p);
    const ProjectionPart part = parts_of(p, config_)[0];
    ExpertRows rows;
    if (part.has_rows) {
      rows = expert_rows(checkpoint_, config_, p);
    } else {
      rows.experts.assign(static_cast<size_t>(p.experts), {{part.rows, DType::kBF16, {p.out, p.in}}});
    }
    const auto matrices = reads_codes(part, role) ? coded(part) : std::vector<CodedMatrix>();
    for (size_t e = 0; e < rows.experts.size(); ++e) {
      int64_t first = 0;
      for (const HostTensor& t : rows.experts[e]) {
        if (t.data) note(t);
        if (!matrices.empty()) role.coded.push_back(matrices[e].from_row(first, p.in));
        first += t.shape[0];
      }
    }
    return backend_.place_experts(rows.experts, rows.layout, role);
  }

  // Each matrix of a part.
  std::vector<CodedMatrix> coded(const ProjectionPart& part) {
    const auto data = [&](const std::string& name, const std::vector<int64_t>& shape, DType dtype) {
      const HostTensor& t = checkpoint_.get_coded(name, shape, dtype);
      note(t);
      return t.data;
    };
    const Tier tier = part.tier;
    const void* codes = data(part.codes, part.codes_shape(), codes_type(tier));
    const void* scales = data(part.scales, part.scales_shape(), scales_type(tier));
    const float* tensor_scales = nullptr;
    if (tier == Tier::kNvfp4)
      tensor_scales = static_cast<const float*>(data(part.tensor_scale, part.tensor_scale_shape(), DType::kF32));
    std::vector<CodedMatrix> matrices;
    for (int64_t i = 0; i < part.matrices(); ++i) {
      const CodedMatrix all = {tier, static_cast<const uint8_t*>(codes), scales};
      matrices.push_back(all.from_row(i * part.out, part.in));
      if (!tensor_scales) continue;
      check_tensor_scale(part, tensor_scales[i]);
      matrices.back().tensor_scale = tensor_scales[i];
    }
    return matrices;
  }

  static void check_tensor_scale(const ProjectionPart& part, float scale) {
    if (std::isfinite(scale) && scale > 0) return;
    throw Error(ErrorKind::kInput,
                fmt::format("the tensor '{}' is {}, but a scale is a number above 0: write the folder "
                            "again with `vireo quantize`",
                            part.tensor_scale, scale));
  }

  Tensor vector(const std::string& name, int64_t size) {
    weights_.memory.push_back(backend_.place_vector(get(name, {size})));
    return weights_.memory.back().view;
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  Backend& backend_;
  const LoadProgress& progress_;
  const TierPlan& tiers_;
  ModelWeights& weights_;
  uint64_t done_ = 0;
};

// The convolution kernel as a matrix [hidden, channel * frame * y * x]; kernels converted by MLX are channels-last.
HostTensor patch_matrix(Loader& load, const VisionConfig& c) {
  const std::string name = "model.visual.patch_embed.proj.weight";
  const int64_t p = c.patch_size, t = c.temporal_patch_size, channels = c.in_channels;
  const HostTensor* found = load.find(name);
  const bool channels_last = found && found->shape == std::vector<int64_t>{c.hidden_size, t, p, p, channels};
  HostTensor m = channels_last ? *found : load.get(name, {c.hidden_size, channels, t, p, p});
  m.shape = {c.hidden_size, c.patch_dim()};
  if (!channels_last || m.dtype != DType::kBF16) return m;
  auto converted = std::make_unique<bf16[]>(static_cast<size_t>(m.size()));
  const bf16* from = static_cast<const bf16*>(m.data);
  const int64_t plane = t * p * p;
  for (int64_t o = 0; o < c.hidden_size; ++o) {
    for (int64_t i = 0; i < plane; ++i) {
      for (int64_t k = 0; k < channels; ++k)
        converted[(o * channels + k) * plane + i] = from[(o * plane + i) * channels + k];
    }
  }
  m.data = converted.get();
  load.weights().converted.push_back(std::move(converted));
  return m;
}

Merger load_merger(Loader& load, const std::string& prefix, const VisionConfig& c, int64_t norm_size) {
  const int64_t merged = c.hidden_size * c.merge_unit();
  Merger m;
  m.norm = load.norm(prefix + ".norm", norm_size, 1e-6f, true);
  m.fc1 = load.linear(prefix + ".linear_fc1", merged, merged, true, {});
  m.fc2 = load.linear(prefix + ".linear_fc2", c.out_hidden_size, merged, true, {});
  return m;
}

VisionBlock load_block(Loader& load, const std::string& prefix, const VisionConfig& c) {
  const int64_t h = c.hidden_size;
  VisionBlock b;
  b.norm1 = load.norm(prefix + ".norm1", h, 1e-6f, true);
  b.norm2 = load.norm(prefix + ".norm2", h, 1e-6f, true);
  b.qkv = load.linear(prefix + ".attn.qkv", 3 * h, h, true, {});
  b.proj = load.linear(prefix + ".attn.proj", h, h, true, {});
  b.fc1 = load.linear(prefix + ".mlp.linear_fc1", c.intermediate_size, h, true, {});
  b.fc2 = load.linear(prefix + ".mlp.linear_fc2", h, c.intermediate_size, true, {});
  return b;
}

VisionWeights load_vision(Loader& load, const VisionConfig& c) {
  const std::string prefix = "model.visual.";
  VisionWeights w;
  w.patch_embed =
      load.backend().place({patch_matrix(load, c)}, {load.get(prefix + "patch_embed.proj.bias", {c.hidden_size})}, {});
  w.pos_embed = load.table(prefix + "pos_embed.weight", c.num_position_embeddings, c.hidden_size);
  for (int64_t i = 0; i < c.depth; ++i) w.blocks.push_back(load_block(load, fmt::format("{}blocks.{}", prefix, i), c));
  w.merger = load_merger(load, prefix + "merger", c, c.hidden_size);
  for (size_t j = 0; j < c.deepstack_layers.size(); ++j) {
    w.deepstack_mergers.push_back(
        load_merger(load, fmt::format("{}deepstack_merger_list.{}", prefix, j), c, c.hidden_size * c.merge_unit()));
  }
  return w;
}

LinearPtr load_embeddings(Loader& load, const TextConfig& c) {
  return load.linear("model.language_model.embed_tokens", c.vocab_size, c.hidden_size, false, {-1, "embed_tokens"});
}

// Where a projection is placed.
LinearPtr& place_of(const Projection& p, DecoderWeights& w, bool tied_head) {
  const std::string name = p.name;
  if (name == "lm_head") return tied_head ? w.embed_tokens : w.lm_head;
  DecoderLayer& layer = w.layers[static_cast<size_t>(p.layer)];
  if (name == "qkv_proj") return layer.qkv;
  if (name == "o_proj") return layer.o_proj;
  return name == "gate_up" ? layer.gate_up : layer.down_proj;
}

DecoderLayer load_layer(Loader& load, int layer, const TextConfig& c) {
  const std::string prefix = fmt::format("model.language_model.layers.{}.", layer);
  const int64_t h = c.hidden_size;
  DecoderLayer l;
  l.input_layernorm = load.norm(prefix + "input_layernorm", h, c.rms_norm_eps, false);
  l.post_attention_layernorm = load.norm(prefix + "post_attention_layernorm", h, c.rms_norm_eps, false);
  l.q_norm = load.norm(prefix + "self_attn.q_norm", c.head_dim, c.rms_norm_eps, false);
  l.k_norm = load.norm(prefix + "self_attn.k_norm", c.head_dim, c.rms_norm_eps, false);
  if (c.num_experts > 0) l.router = load.linear(prefix + "mlp.gate", c.num_experts, h, false, {layer, "router"});
  return l;
}

DecoderWeights load_decoder(Loader& load, const ModelConfig& config) {
  const TextConfig& c = config.text;
  const std::string prefix = "model.language_model.";
  DecoderWeights w;
  if (!config.tied_head) w.embed_tokens = load_embeddings(load, c);
  if (!config.tied_head && !load.has("lm_head.weight")) {
    throw Error(
        ErrorKind::kInput,
        "the checkpoint has no tensor lm_head.weight although config.json says tie_word_embeddings: false; it is "
        "not a chat checkpoint (an embedding model?) or its download is incomplete");
  }
  for (const Projection& p : projections(c)) {
    if (p.layer == static_cast<int>(w.layers.size())) w.layers.push_back(load_layer(load, p.layer, c));
    place_of(p, w, config.tied_head) = load.projection(p);
  }
  w.norm = load.norm(prefix + "norm", c.hidden_size, c.rms_norm_eps, false);
  return w;
}

}  // namespace

uint64_t bf16_bytes(const Checkpoint& checkpoint, const ModelConfig& config) {
  uint64_t bytes = checkpoint.tensor_bytes();
  for (const Projection& p : projections(config.text)) {
    for (const ProjectionPart& part : parts_of(p, config)) {
      if (part.tier == Tier::kBf16) continue;
      for (const std::string& name : {part.codes, part.scales, part.tensor_scale}) {
        if (const HostTensor* t = checkpoint.find(name)) bytes -= t->bytes();
      }
      if (!part.has_rows) bytes += static_cast<uint64_t>(part.weights()) * sizeof(bf16);
    }
  }
  return bytes;
}

ModelWeights load_weights(const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend,
                          const LoadProgress& progress, const TierPlan& tiers) {
  ModelWeights weights;
  Loader load(checkpoint, config, backend, progress, tiers, weights);
  weights.vision = load_vision(load, config.vision);
  weights.decoder = load_decoder(load, config);
  return weights;
}

void retier(ModelWeights& weights, const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend,
            const TierPlan& from, const TierPlan& to) {
  const LoadProgress silent;
  Loader load(checkpoint, config, backend, silent, to, weights);
  for (const Projection& p : projections(config.text)) {
    const bool same = from.of(p.layer, p.name) == to.of(p.layer, p.name);
    if (same && has_codes_alone(from, p, config) == has_codes_alone(to, p, config)) continue;
    place_of(p, weights.decoder, config.tied_head) = load.projection(p);
  }
}

}  // namespace vireo
