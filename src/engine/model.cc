// SPDX-License-Identifier: Apache-2.0
#include "engine/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/backends.h"
#include "engine/options.h"
#include "files/hub.h"
#include "files/quote.h"

namespace vireo {
namespace {

// Sizes that both the preprocessor files and config.json state.
void check_agreement(const ModelConfig& config, const PreprocessorConfig& pre) {
  for (const PixelConfig* p : {&pre.image, static_cast<const PixelConfig*>(&pre.video)}) {
    const auto check = [](const char* key, int64_t preprocessor, int64_t model) {
      if (preprocessor == model) return;
      throw Error(ErrorKind::kInput,
                  fmt::format("the preprocessor files say {} {} and config.json says {}: the files are of "
                              "different checkpoints",
                              key, preprocessor, model));
    };
    check("patch_size", p->patch_size, config.vision.patch_size);
    check("temporal_patch_size", p->temporal_patch_size, config.vision.temporal_patch_size);
    check("merge_size", p->merge_size, config.vision.merge_size);
  }
}

void check_max_seq(int max_seq, int64_t positions) {
  if (max_seq <= positions) return;
  throw Error(ErrorKind::kUsage, fmt::format("--max-seq {} is beyond the {} positions of this model: use at most that",
                                             max_seq, positions));
}

// Patches of the largest picture that the options let through.
int64_t largest_picture(const Options& o, const ModelFiles& files) {
  const PixelConfig pixels = with_budget(files.preprocessor, parse_max_pixels(o.max_pixels)).image;
  const int64_t most = o.max_pixels == "auto" ? std::min(pixels.max_pixels, kAutoPixels) : pixels.max_pixels;
  const int64_t room = o.max_seq * files.config.vision.merge_unit();
  return std::min(most / (int64_t{pixels.patch_size} * pixels.patch_size), room);
}

// A whole number of pages.
int64_t cache_slots(const Options& o) {
  return (o.max_seq + kPageTokens - 1) / kPageTokens * kPageTokens;
}

// Of a prompt that is all pictures.
uint64_t prompt_pictures_bytes(const Options& o, const ModelConfig& c, const Backend& backend) {
  const int64_t copies = 1 + static_cast<int64_t>(c.vision.deepstack_layers.size());
  return static_cast<uint64_t>(o.max_seq * c.text.hidden_size * copies) * size_of(backend.activation_type());
}

uint64_t model_scratch_bytes(const Options& o, const ModelFiles& files, const Backend& backend, int64_t rows) {
  const DType act = backend.activation_type(), residual = backend.residual_type();
  const ModelConfig& c = files.config;
  return Decoder::scratch_bytes(c.text, {.max_rows = rows}, act, residual) +
         VisionTower::scratch_bytes(c.vision, largest_picture(o, files), act, residual);
}

ModelInfo plan_of(const Options& o, const ModelFiles& files, const Backend& backend, const RunnerShape& shape) {
  const ModelConfig& c = files.config;
  ModelInfo plan{.model_type = c.model_type,
                 .device = backend.name() + " (" + backend.description() + ")",
                 .max_seq = o.max_seq,
                 .vocab_size = static_cast<int>(c.text.vocab_size),
                 .eos_tokens = c.eos_tokens};
  plan.weight_bytes = bf16_bytes(files.checkpoint, c);
  const int64_t slots = cache_slots(o);
  plan.kv_bytes = Decoder::kv_bytes_per_token(c.text, backend.kv_type(), kv_mode(o)) * static_cast<uint64_t>(slots);
  const Backend::OwnBytes own = backend.own_bytes(slots, shape.sequences, Decoder::attention_shape(c.text), kv_mode(o));
  plan.scratch_bytes = model_scratch_bytes(o, files, backend, shape.max_rows) + own.scratch;
  plan.recording_bytes = own.recordings;
  plan.picture_bytes = prompt_pictures_bytes(o, c, backend) + static_cast<uint64_t>(o.image_cache_bytes);
  plan.available_bytes = backend.available_memory();
  return plan;
}

// BF16 and any tier of the largest matrix that has tiers: its new copy lies beside the old one for a moment.
uint64_t largest_projection(const TextConfig& c) {
  int64_t most = 0;
  for (const Projection& p : projections(c)) most = std::max(most, p.weights());
  return static_cast<uint64_t>(4 * most);
}

void check_growth(uint64_t more, uint64_t moment, const Backend& backend) {
  const auto available = backend.available_memory();
  if (!available || more + moment <= *available) return;
  const auto gib = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  throw Error(
      ErrorKind::kCapacity,
      fmt::format("the new tiers take {:.2f} GiB more, and {:.2f} GiB while they are made, of the {:.2f} GiB of "
                  "memory available to {}: choose smaller ones, or free memory",
                  gib(more), gib(moment), gib(*available), backend.name()));
}

Forward forward_of(Decoder& decoder) {
  return [&decoder](const Step& step) { return decoder.forward(step); };
}

}  // namespace

PixelScale pixel_scale(const PixelConfig& c) {
  PixelScale scale;
  for (int i = 0; i < 3; ++i) {
    scale.mean[i] = c.mean[i] * 255.0f;
    scale.std[i] = c.std[i] * 255.0f;
  }
  return scale;
}

ModelFiles open_model(const std::string& checkpoint, const std::filesystem::path& hub_cache) {
  const auto folder = resolve_checkpoint(checkpoint, {hub_cache});
  ModelFiles files{folder,
                   load_model_config(folder),
                   load_preprocessor_config(folder),
                   Tokenizer::load(folder / "tokenizer.json"),
                   ChatTemplate::load(folder),
                   Checkpoint::open(folder)};
  check_agreement(files.config, files.preprocessor);
  if (files.tokenizer.size() > files.config.text.vocab_size) {
    throw Error(
        ErrorKind::kInput,
        fmt::format("tokenizer.json has {} tokens and config.json's vocab_size is {}: the files are of different "
                    "checkpoints",
                    files.tokenizer.size(), files.config.text.vocab_size));
  }
  return files;
}

void check_stored(const TierPlan& tiers, const ModelConfig& config) {
  for (const Projection& p : projections(config.text)) {
    const ProjectionPart part = parts_of(p, config)[0];
    const Tier tier = tiers.of(p.layer, p.name);
    if (part.has_rows || part.tier == tier) continue;
    throw Error(
        ErrorKind::kUsage,
        fmt::format("{}{} is asked for as {}, but this checkpoint has it as {} alone: leave out --weight-mode "
                    "and --wq, or take the BF16 checkpoint that it was made of, or quantise that with "
                    "--keep-bf16",
                    p.layer < 0 ? "" : fmt::format("L{}.", p.layer), p.name, tier_name(tier), tier_name(part.tier)));
  }
}

uint64_t tier_bytes(const TierPlan& tiers, const TextConfig& config) {
  double bits = 0;
  for (const Projection& p : projections(config)) {
    const Tier tier = tiers.of(p.layer, p.name);
    if (tier == Tier::kBf16) continue;
    const int64_t padded = tier_groups(p.in) * kTierGroup;
    bits += tier_bits(tier) * static_cast<double>(p.matrices() * p.out) * static_cast<double>(padded);
  }
  return static_cast<uint64_t>(bits / 8);
}

uint64_t bytes_left_out(const TierPlan& tiers, const ModelConfig& config) {
  uint64_t bytes = 0;
  for (const Projection& p : projections(config.text)) {
    if (has_codes_alone(tiers, p, config)) bytes += static_cast<uint64_t>(p.weights()) * sizeof(bf16);
  }
  return bytes;
}

uint64_t planned_bytes(const ModelInfo& plan) {
  return plan.weight_bytes + plan.kv_bytes + plan.scratch_bytes + plan.picture_bytes + plan.recording_bytes;
}

void check_memory(const ModelInfo& plan) {
  const auto available = plan.available_bytes;
  if (!available || planned_bytes(plan) <= *available) return;
  const auto gib = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  throw Error(
      ErrorKind::kCapacity,
      fmt::format("weights of {:.2f} GiB, a KV cache of {:.2f} GiB (max_seq {}), scratch of {:.2f} GiB, pictures of "
                  "{:.2f} GiB and recorded steps of {:.2f} GiB do not fit in the {:.2f} GiB of memory available to {}: "
                  "lower --max-seq, --prefill-chunk or --max-pixels, free memory, or use a smaller checkpoint",
                  gib(plan.weight_bytes), gib(plan.kv_bytes), plan.max_seq, gib(plan.scratch_bytes),
                  gib(plan.picture_bytes), gib(plan.recording_bytes), gib(*available), plan.device));
}

Model::Model(const Options& options, const Progress& progress, const OnPlan& on_plan)
    : files(open_model(options.checkpoint, options.hub_cache)) {
  const ModelConfig& config = files.config;
  validate_layers(options, config.text.num_layers);
  check_max_seq(options.max_seq, config.text.max_position_embeddings);
  std::vector<std::string> notes;
  backend = make_backend(options, notes);
  const TierPlan tiers = tier_plan(options, config);
  check_stored(tiers, config);
  step_shape = {.max_rows = prefill_rows(options, *backend),
                .sequences = 1,
                .pages = cache_slots(options) / kPageTokens,
                .vocab = config.text.vocab_size,
                .recorded_extends = options.prefill_graph ? kRecordedExtends : 0};
  info = plan_of(options, files, *backend, step_shape);
  info.notes = notes;
  kv_mode = vireo::kv_mode(options);
  info.weight_bytes += tier_bytes(tiers, config.text);
  if (const uint64_t left_out = bytes_left_out(tiers, config); left_out > 0) {
    info.weight_bytes -= left_out;
    info.scratch_bytes += backend->restoring_bytes();
  } else if (options.low_memory) {
    info.notes.push_back(
        "--low-memory changes nothing: no matrix has a tier, or only the head that is the embedding too; --weight-mode "
        "gives one");
  }
  check_memory(info);
  if (on_plan) on_plan(info);
  backend->reserve(planned_bytes(info) - info.recording_bytes);
  weights = load_weights(files.checkpoint, config, *backend, progress, tiers);
  if (backend->keeps_copies_in_host_memory() || options.low_memory) files.checkpoint.leave_memory();
  tower = std::make_unique<VisionTower>(config.vision, weights.vision, *backend, pixel_scale(files.preprocessor.image));
  decoder = std::make_unique<Decoder>(config, weights.decoder, *backend,
                                      Decoder::Shape{.max_rows = step_shape.max_rows,
                                                     .max_wanted = 1,
                                                     .slots = step_shape.pages * kPageTokens,
                                                     .kv_mode = kv_mode});
  runner = make_runner(options, *backend, forward_of(*decoder), step_shape);
  rehearse(options);
}

void Model::retier(const Options& from, const Options& to) {
  const TextConfig& c = files.config.text;
  validate_layers(to, c.num_layers);
  const TierPlan old_plan = tier_plan(from, files.config), plan = tier_plan(to, files.config);
  check_stored(plan, files.config);
  const uint64_t bytes = tier_bytes(plan, c) + bytes_left_out(old_plan, files.config),
                 old_bytes = tier_bytes(old_plan, c) + bytes_left_out(plan, files.config);
  const bool begins_to_restore = bytes_left_out(plan, files.config) > 0 && bytes_left_out(old_plan, files.config) == 0;
  const uint64_t restoring = begins_to_restore ? backend->restoring_bytes() : 0;
  check_growth((bytes > old_bytes ? bytes - old_bytes : 0) + restoring, largest_projection(c), *backend);
  runner->forget_recordings();
  vireo::retier(weights, files.checkpoint, files.config, *backend, old_plan, plan);
  info.weight_bytes += bytes - old_bytes;
  info.scratch_bytes += restoring;
}

void Model::rehearse(const Options& options) {
  const VisionConfig& c = files.config.vision;
  const int side = static_cast<int>(8 * c.merge_size);
  const std::vector<uint8_t> pixels(static_cast<size_t>(side * side * c.patch_dim()), 0);
  backend->rehearse(largest_picture(options, files), [&] {
    const auto room = [&] {
      return backend->allocate(side * side / c.merge_unit(), files.config.text.hidden_size, backend->activation_type());
    };
    const OwnedTensor merged = room();
    std::vector<OwnedTensor> taps;
    VisionOutput output{merged.view, {}};
    for (size_t i = 0; i < c.deepstack_layers.size(); ++i) {
      taps.push_back(room());
      output.deepstack.push_back(taps.back().view);
    }
    tower->encode({1, side, side, pixels.data()}, output);
    backend->wait();
  });
  backend->rehearse(step_shape.max_rows, [&] {
    HostStep step;
    for (int32_t i = 0; i < std::min<int64_t>(64, step_shape.max_rows); ++i) {
      step.ids.push_back(0);
      step.positions.push_back({i, i, i});
      step.sequences.push_back(0);
      step.cache_indices.push_back(i);
    }
    step.wanted = {0};
    runner->extend(step);
    runner->seat({.ids = {0}, .positions = {{0, 0, 0}}, .sequences = {0}, .cache_indices = {0}, .wanted = {0}});
    runner->rehearse();
  });
}

std::unique_ptr<Runner> Model::make_walker() {
  return make_eager_runner(*backend, forward_of(*decoder), step_shape);
}

std::string find_bad_weight(const Checkpoint& checkpoint) {
  for (const HostTensor& t : checkpoint.tensors()) {
    if (t.dtype != DType::kBF16) continue;
    const bf16* data = static_cast<const bf16*>(t.data);
    const bool bad = std::any_of(data, data + t.size(), [](bf16 v) { return (v.bits & 0x7f80) == 0x7f80; });
    if (bad) return fmt::format("{} in {}", in_quotes(t.name), path_text(checkpoint.file_of(t).filename()));
  }
  return "";
}

}  // namespace vireo
