// SPDX-License-Identifier: Apache-2.0
#include "model/projections.h"

#include <fmt/format.h>

#include "base/check.h"

namespace vireo {
namespace {

constexpr char kEmbedding[] = "model.language_model.embed_tokens.weight";
constexpr char kHead[] = "lm_head.weight";

// The checkpoint's names below the layer's, and their outputs.
std::vector<std::pair<std::string, int64_t>> tensors_of(const Projection& p, const TextConfig& c) {
  const std::string name = p.name;
  if (name == "qkv_proj") {
    return {{"self_attn.q_proj.weight", c.q_size()},
            {"self_attn.k_proj.weight", c.kv_size()},
            {"self_attn.v_proj.weight", c.kv_size()}};
  }
  if (name == "o_proj") return {{"self_attn.o_proj.weight", c.hidden_size}};
  if (p.experts > 0) return {{name == "gate_up" ? "mlp.experts.gate_up_proj" : "mlp.experts.down_proj", p.out}};
  if (name == "gate_up")
    return {{"mlp.gate_proj.weight", c.intermediate_size}, {"mlp.up_proj.weight", c.intermediate_size}};
  CHECK(name == "mlp_down");
  return {{"mlp.down_proj.weight", c.hidden_size}};
}

ProjectionPart part(const std::string& name, int64_t out, const Projection& p, const ModelConfig& config) {
  ProjectionPart part{.rows = name,
                      .codes = name,
                      .scales = name + "_scale",
                      .tensor_scale = name + "_scale_2",
                      .out = out,
                      .in = p.in,
                      .experts = p.experts};
  if (!config.quantization) return part;
  part.tier = config.quantization->plan().of(p.layer, p.name);
  part.has_rows = part.tier == Tier::kBf16 || config.quantization->keeps_bf16;
  if (config.quantization->keeps_bf16) part.codes += "_codes";
  return part;
}

}  // namespace

std::vector<Projection> projections(const TextConfig& c) {
  std::vector<Projection> all;
  for (int layer = 0; layer < c.num_layers; ++layer) {
    all.push_back({layer, "qkv_proj", c.q_size() + 2 * c.kv_size(), c.hidden_size});
    all.push_back({layer, "o_proj", c.hidden_size, c.q_size()});
    const int64_t inner = c.num_experts > 0 ? c.moe_intermediate_size : c.intermediate_size;
    all.push_back({layer, "gate_up", 2 * inner, c.hidden_size, c.num_experts});
    all.push_back({layer, "mlp_down", c.hidden_size, inner, c.num_experts});
  }
  all.push_back({-1, "lm_head", c.vocab_size, c.hidden_size});
  return all;
}

bool has_codes_alone(const TierPlan& plan, const Projection& p, const ModelConfig& config) {
  const bool is_embedding = p.layer < 0 && config.tied_head;
  return plan.codes_alone && plan.of(p.layer, p.name) != Tier::kBf16 && !is_embedding;
}

std::vector<ProjectionPart> parts_of(const Projection& p, const ModelConfig& config) {
  if (p.layer < 0) {
    ProjectionPart head = part(kHead, p.out, p, config);
    if (config.tied_head) {
      head.rows = kEmbedding;
      head.has_rows = true;
    }
    return {head};
  }
  std::vector<ProjectionPart> parts;
  for (const auto& [name, out] : tensors_of(p, config.text)) {
    parts.push_back(part(fmt::format("model.language_model.layers.{}.{}", p.layer, name), out, p, config));
  }
  return parts;
}

uint64_t ProjectionPart::coded_bytes() const {
  if (tier == Tier::kBf16) return 0;
  const uint64_t row =
      static_cast<uint64_t>(code_bytes(tier, in)) + static_cast<uint64_t>(tier_groups(in)) * size_of(scales_type(tier));
  const uint64_t matrix = static_cast<uint64_t>(out) * row + (tier == Tier::kNvfp4 ? sizeof(float) : 0);
  return static_cast<uint64_t>(matrices()) * matrix;
}

std::vector<int64_t> ProjectionPart::shape(int64_t cols) const {
  return experts > 0 ? std::vector<int64_t>{experts, out, cols} : std::vector<int64_t>{out, cols};
}

DType codes_type(Tier tier) {
  if (has_nibbles(tier)) return DType::kU8;
  return tier == Tier::kW8 ? DType::kF8E4M3 : DType::kI8;
}

DType scales_type(Tier tier) {
  return tier == Tier::kNvfp4 ? DType::kF8E4M3 : DType::kBF16;
}

}  // namespace vireo
