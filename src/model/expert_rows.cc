// SPDX-License-Identifier: Apache-2.0
#include "model/expert_rows.h"

#include <fmt/format.h>

namespace vireo {
namespace {

using Shape = std::vector<int64_t>;

std::string prefix_of(int layer) {
  return fmt::format("model.language_model.layers.{}.mlp.experts.", layer);
}

bool lie_apart(const Checkpoint& checkpoint, int layer) {
  const std::string first = prefix_of(layer) + "0.";
  return checkpoint.find(first + "gate_proj.weight") || checkpoint.find(first + "down_proj.weight");
}

ExpertRows rows_apart(const Checkpoint& checkpoint, const Projection& p) {
  const bool is_down = std::string(p.name) == "mlp_down";
  const std::vector<const char*> names = is_down ? std::vector{"down_proj"} : std::vector{"gate_proj", "up_proj"};
  const Shape shape = {p.out / static_cast<int64_t>(names.size()), p.in};
  ExpertRows rows;
  for (int64_t e = 0; e < p.experts; ++e) {
    std::vector<HostTensor>& parts = rows.experts.emplace_back();
    for (const char* name : names)
      parts.push_back(checkpoint.get(fmt::format("{}{}.{}.weight", prefix_of(p.layer), e, name), shape));
  }
  return rows;
}

// The matrix of expert e inside a [experts, a, b] tensor.
HostTensor slice(const HostTensor& all, int64_t e) {
  HostTensor t = all;
  t.shape = {all.shape[1], all.shape[2]};
  t.data = static_cast<const bf16*>(all.data) + e * t.size();
  return t;
}

}  // namespace

bool stacks_out_in(const Checkpoint& checkpoint, const ModelConfig& config, int layer) {
  const TextConfig& c = config.text;
  const HostTensor* down = checkpoint.find(prefix_of(layer) + "down_proj");
  if (down && down->dtype == DType::kBF16) {
    return down->shape == Shape{c.num_experts, c.hidden_size, c.moe_intermediate_size};
  }
  return config.quantization && config.quantization->experts_out_in;
}

ExpertRows expert_rows(const Checkpoint& checkpoint, const ModelConfig& config, const Projection& p) {
  if (lie_apart(checkpoint, p.layer)) return rows_apart(checkpoint, p);
  const bool out_in = stacks_out_in(checkpoint, config, p.layer);
  const Shape shape = out_in ? Shape{p.experts, p.out, p.in} : Shape{p.experts, p.in, p.out};
  const HostTensor& all = checkpoint.get(parts_of(p, config)[0].rows, shape);
  ExpertRows rows{{}, out_in ? ExpertLayout::kOutIn : ExpertLayout::kInOut};
  for (int64_t e = 0; e < p.experts; ++e) rows.experts.push_back({slice(all, e)});
  return rows;
}

}  // namespace vireo
