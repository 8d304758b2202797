// Option values are refused here, before any file or device is touched.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "engine/backends.h"
#include "engine/options.h"
#include "files/quote.h"

namespace vireo {
namespace {

using Names = std::vector<std::string>;

// Values in the sentence may come from anywhere.
[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorKind::kUsage, printable(sentence, 1000));
}

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A tier, or what the checkpoint has.
Names weight_modes() {
  Names names = {"auto"};
  names.insert(names.end(), tier_names().begin(), tier_names().end());
  return names;
}
const Names kKvModes = {"bf16", "int8"};

void check_value(const std::string& option, const std::string& value, const Names& values) {
  if (contains(values, value)) return;
  refuse(fmt::format("{} {} is unknown: use {}", option, value, fmt::join(values, ", ")));
}

void check_override(const std::string& key, const std::string& tier) {
  const size_t dot = key.find('.');
  const std::string projection = dot == std::string::npos ? key : key.substr(dot + 1);
  if (dot != std::string::npos) {
    const std::string layer = key.substr(0, dot);
    int index = -1;
    const auto [end, error] = std::from_chars(layer.data() + 1, layer.data() + layer.size(), index);
    const bool canonical = layer.size() > 1 && layer[0] == 'L' && error == std::errc() && index >= 0 &&
                           end == layer.data() + layer.size() && layer == fmt::format("L{}", index);
    if (!canonical) refuse(fmt::format("--wq {}={}: '{}' is not a layer: write L0, L1, ...", key, tier, layer));
    if (projection == "lm_head")
      refuse(fmt::format("--wq {}={}: lm_head has no layers: write lm_head={}", key, tier, tier));
  }
  if (!contains(tier_projections(), projection)) {
    refuse(fmt::format("--wq {}={}: '{}' is not a projection: use one of {}", key, tier, projection,
                       fmt::join(tier_projections(), ", ")));
  }
  check_value("--wq " + key, tier, tier_names());
}

}  // namespace

std::optional<int64_t> parse_max_pixels(const std::string& value) {
  if (value == "auto" || value == "none") return std::nullopt;
  int64_t pixels = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), pixels);
  if (error != std::errc() || end != value.data() + value.size() || pixels < 1) {
    refuse(fmt::format("--max-pixels {} is not a pixel count: use auto, none or a number such as 1000000", value));
  }
  return pixels;
}

TierPlan tier_plan(const Options& o, const ModelConfig& config) {
  std::map<std::string, Tier> tiers;
  const bool is_auto = o.weight_mode == "auto";
  if (is_auto && config.quantization) tiers = config.quantization->tiers;
  // What is asked for a projection holds for its layers too.
  for (const auto& [key, tier] : o.wq_overrides) {
    std::erase_if(tiers, [&](const auto& other) { return other.first.ends_with("." + key); });
  }
  for (const auto& [key, tier] : o.wq_overrides) tiers[key] = find_tier(tier).value();
  return {is_auto ? Tier::kBf16 : find_tier(o.weight_mode).value(), tiers, o.low_memory};
}

KvMode kv_mode(const Options& o) {
  return o.kv_mode == "int8" ? KvMode::kInt8 : KvMode::kBf16;
}

void validate_layers(const Options& o, int64_t layers) {
  for (const auto& [key, tier] : o.wq_overrides) {
    const size_t dot = key.find('.');
    if (dot == std::string::npos || std::stoll(key.substr(1, dot - 1)) < layers) continue;
    refuse(fmt::format("--wq {}={}: this model has {} layers: use L0 to L{}", key, tier, layers, layers - 1));
  }
}

void validate(const Sampling& s) {
  const auto check = [](const char* name, double value, double low, double high) {
    if (value >= low && value <= high) return;  // false for NaN too
    refuse(fmt::format("{} {} is out of range: use {} to {}", name, value, low, high));
  };
  check("temperature", s.temperature, 0, 100);
  check("top_p", s.top_p, 0, 1);
  check("min_p", s.min_p, 0, 1);
  check("repetition_penalty", s.repetition_penalty, 0.01, 100);
  check("presence_penalty", s.presence_penalty, -100, 100);
  check("frequency_penalty", s.frequency_penalty, -100, 100);
  if (s.top_k < 0) refuse(fmt::format("top_k {} is out of range: use 1 or more, or 0 for no limit", s.top_k));
}

void validate(const Options& o) {
  validate_device(o.device);
  validate_kernels(o.kernels);
  if (o.max_seq < 2)
    refuse(fmt::format("--max-seq {} is too small: it counts prompt and answer tokens, at least 2", o.max_seq));
  parse_max_pixels(o.max_pixels);
  if (o.pixels != "default" && o.pixels != "reference") {
    refuse(fmt::format("--pixels {} is unknown: use default or reference", o.pixels));
  }
  check_value("--weight-mode", o.weight_mode, weight_modes());
  check_value("--kv-mode", o.kv_mode, kKvModes);
  for (const auto& [key, tier] : o.wq_overrides) check_override(key, tier);
  if (o.threads < 0 || o.threads > 1024)
    refuse(fmt::format("--threads {} is out of range: use 1 to 1024, or 0 for all", o.threads));
  if (o.gemm_candidates < 1 || o.gemm_candidates > 100) {
    refuse(fmt::format("--gemm-candidates {} is out of range: use 1 (the library's first choice) to 100",
                       o.gemm_candidates));
  }
  if (o.prefill_chunk < 0) {
    refuse(fmt::format("--prefill-chunk {} is too small: use at least 1, or 0 for what suits the device",
                       o.prefill_chunk));
  }
  if (o.checkpoint.empty()) refuse("no checkpoint is named: use --checkpoint FOLDER or --checkpoint ORG/NAME");
}

}  // namespace vireo
