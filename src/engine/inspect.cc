// What a checkpoint holds, what a text or picture becomes, and what this machine can do.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>

#include "base/host_info.h"
#include "engine/backends.h"
#include "engine/media.h"
#include "engine/model.h"
#include "engine/options.h"
#include "engine/power_mode.h"
#include "engine/quantize.h"
#include "files/quote.h"
#include "ops/reference.h"
#include "vireo/tools.h"

namespace vireo {
namespace {

Json config_json(const ModelConfig& c) {
  const TextConfig& t = c.text;
  const VisionConfig& v = c.vision;
  Json text = {{"hidden_size", t.hidden_size}, {"num_layers", t.num_layers},
               {"num_heads", t.num_heads},     {"num_kv_heads", t.num_kv_heads},
               {"head_dim", t.head_dim},       {"intermediate_size", t.intermediate_size},
               {"vocab_size", t.vocab_size},   {"max_position_embeddings", t.max_position_embeddings},
               {"rope_theta", t.rope_theta},   {"mrope_section", t.mrope_section}};
  if (t.num_experts > 0) {
    text["num_experts"] = t.num_experts;
    text["experts_per_token"] = t.experts_per_token;
    text["moe_intermediate_size"] = t.moe_intermediate_size;
  }
  const Json vision = {{"hidden_size", v.hidden_size},
                       {"depth", v.depth},
                       {"num_heads", v.num_heads},
                       {"head_dim", v.head_dim()},
                       {"intermediate_size", v.intermediate_size},
                       {"position_side", v.position_side},
                       {"patch_size", v.patch_size},
                       {"merge_size", v.merge_size},
                       {"deepstack_layers", v.deepstack_layers}};
  return {{"model_type", c.model_type}, {"tied_head", c.tied_head}, {"text", text}, {"vision", vision}};
}

// All weights, projections in a tier; the head of a tied model is quantised beside the embedding it shares.
std::vector<std::pair<std::string, uint64_t>> bytes_by_tier(const ModelFiles& files) {
  uint64_t quantised = 0;
  for (const Projection& p : projections(files.config.text)) quantised += static_cast<uint64_t>(p.weights());
  const uint64_t bf16 = bf16_bytes(files.checkpoint, files.config);
  const uint64_t head = static_cast<uint64_t>(files.config.text.vocab_size * files.config.text.hidden_size);
  const uint64_t rest = bf16 - 2 * (quantised - (files.config.tied_head ? head : 0));
  const auto bytes = [&](Tier tier) { return rest + tier_bytes(TierPlan(tier, {}), files.config.text); };
  return {{"bf16", bf16}, {"w8, int8", bytes(Tier::kW8)}, {"w4, int4", bytes(Tier::kW4)}};
}

// Elements of codes and scales, less those of the rows that they stand for alone. load_weights has found them.
int64_t coded_elements(const ModelFiles& files) {
  int64_t more = 0;
  for (const Projection& p : projections(files.config.text)) {
    for (const ProjectionPart& part : parts_of(p, files.config)) {
      if (part.tier == Tier::kBf16) continue;
      more += files.checkpoint.find(part.codes)->size() + files.checkpoint.find(part.scales)->size();
      if (part.tier == Tier::kNvfp4) more += part.matrices();
      if (!part.has_rows) more -= part.weights();
    }
  }
  return more;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(':') != std::string::npos) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace

CheckpointInfo inspect_checkpoint(const std::string& checkpoint, const std::filesystem::path& hub_cache) {
  const ModelFiles files = open_model(checkpoint, hub_cache);
  const auto backend = make_reference_backend();
  const auto& quantization = files.config.quantization;
  // Checks every name and shape; copies next to nothing.
  load_weights(files.checkpoint, files.config, *backend, {}, quantization ? quantization->plan() : TierPlan());
  CheckpointInfo info;
  info.folder = files.folder;
  info.model_type = files.config.model_type;
  info.config = config_json(files.config).dump(2);
  for (const HostTensor& t : files.checkpoint.tensors()) {
    const std::filesystem::path file = files.checkpoint.file_of(t).filename();
    info.tensors.push_back({t.name, name_of(t.dtype), t.shape, file.string(), path_text(t.name), path_text(file)});
    (t.name.rfind("model.visual.", 0) == 0 ? info.vision_parameters : info.text_parameters) += t.size();
  }
  info.text_parameters -= coded_elements(files);
  info.tensor_bytes = files.checkpoint.tensor_bytes();
  info.tiers = stored_tiers(files.config);
  info.keeps_bf16 = quantization && quantization->keeps_bf16;
  if (quantization && quantization->folded) {
    info.folded_by = path_text(quantization->folded->calibration);
    info.folded_conversations = quantization->folded->conversations;
  }
  info.chat_template = files.chat_template.style_name();
  info.chat_template_note = files.chat_template.note();
  info.min_pixels = files.preprocessor.image.min_pixels;
  info.max_pixels = files.preprocessor.image.max_pixels;
  info.eos_tokens = files.config.eos_tokens;
  info.kv_bytes_per_token = Decoder::kv_bytes_per_token(files.config.text, DType::kBF16, KvMode::kBf16);
  info.weight_bytes = bytes_by_tier(files);
  return info;
}

std::vector<TokenInfo> tokenize(const std::string& checkpoint, const std::filesystem::path& hub_cache,
                                const std::string& text) {
  const ModelFiles files = open_model(checkpoint, hub_cache);
  std::vector<TokenInfo> out;
  for (int32_t id : files.tokenizer.encode(text, Tokenizer::Added::kNone)) {
    out.push_back({id, std::string(files.tokenizer.bytes(id, false))});
  }
  return out;
}

PictureInfo inspect_picture(const std::string& checkpoint, const std::filesystem::path& hub_cache,
                            const std::filesystem::path& picture, const std::string& max_pixels) {
  const auto budget = parse_max_pixels(max_pixels);
  const ModelFiles files = open_model(checkpoint, hub_cache);
  const std::string bytes = read_file(picture, ImageLimits{}.max_bytes);
  const ImageSize size = image_size(std::as_bytes(std::span(bytes.data(), bytes.size())), path_text(picture));
  const PixelConfig config = with_budget(files.preprocessor, budget).image;
  const Grid grid = image_grid({size.height, size.width}, config);
  return {.width = size.width,
          .height = size.height,
          .resized_width = grid.w * config.patch_size,
          .resized_height = grid.h * config.patch_size,
          .grid_t = grid.t,
          .grid_h = grid.h,
          .grid_w = grid.w,
          .patches = grid.patches(),
          .tokens = grid.tokens(config.merge_size)};
}

std::vector<Finding> doctor() {
  using Level = Finding::Level;
  std::vector<Finding> findings;
  utsname system{};
  uname(&system);
  findings.push_back({Level::kOk, "vireo", fmt::format("{} for {}", version(), system.machine)});
  findings.push_back({Level::kOk, "processor", processor_name()});
  for (const Finding& f : backend_findings()) findings.push_back(f);
  if (const auto available = available_host_memory()) {
    const double gib = static_cast<double>(*available) / (1 << 30);
    const bool enough = gib >= 5;
    findings.push_back({enough ? Level::kOk : Level::kProblem, "memory",
                        fmt::format("{:.1f} GiB available{}", gib, enough ? "" : "; the 2B checkpoint needs about 5")});
  }
  const std::string governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (!governor.empty()) {
    findings.push_back(
        {governor == "powersave" ? Level::kNote : Level::kOk, "clocks", "frequency governor: " + governor});
  }
  if (const auto power = power_mode()) findings.push_back(*power);
  const std::string pages = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  if (!pages.empty()) findings.push_back({Level::kOk, "huge pages", pages});
  return findings;
}

}  // namespace vireo
