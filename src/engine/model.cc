// SPDX-License-Identifier: Apache-2.0
#include "engine/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "engine/backends.h"
#include "engine/options.h"
#include "files/hub.h"

namespace vireo {
namespace {

// MemAvailable of the kernel, which counts the page cache as free; nothing where it is not told.
std::optional<uint64_t> available_memory() {
  std::ifstream info("/proc/meminfo");
  std::string key, unit;
  uint64_t kib = 0;
  while (info >> key >> kib) {
    std::getline(info, unit);
    if (key == "MemAvailable:") return kib << 10;
  }
  return std::nullopt;
}

PixelScale pixel_scale(const PixelConfig& c) {
  PixelScale scale;
  for (int i = 0; i < 3; ++i) {
    scale.mean[i] = c.mean[i] * 255.0f;
    scale.std[i] = c.std[i] * 255.0f;
  }
  return scale;
}

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

}  // namespace

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

uint64_t check_memory(const ModelFiles& files, DType kv_type, int max_seq) {
  const uint64_t kv = Decoder::kv_bytes_per_token(files.config.text, kv_type) * static_cast<uint64_t>(max_seq);
  const uint64_t weights = files.checkpoint.tensor_bytes();
  const auto available = available_memory();
  if (!available || weights + kv <= *available) return kv;
  const auto gib = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  throw Error(
      ErrorKind::kCapacity,
      fmt::format(
          "weights of {:.2f} GiB and a KV cache of {:.2f} GiB (max_seq {}) do not fit in the {:.2f} GiB of memory "
          "available: lower --max-seq, free memory, or use a smaller checkpoint",
          gib(weights), gib(kv), max_seq, gib(*available)));
}

Model::Model(const Options& options, const Progress& progress)
    : files(open_model(options.checkpoint, options.hub_cache)) {
  validate_layers(options, files.config.text.num_layers);
  backend = make_backend(options);
  check_memory(files, backend->kv_type(), options.max_seq);
  if (options.max_seq > files.config.text.max_position_embeddings) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--max-seq {} is beyond the {} positions of this model: use at most that", options.max_seq,
                            files.config.text.max_position_embeddings));
  }
  weights = load_weights(files.checkpoint, files.config, *backend, progress);
  const int64_t rows = std::min(options.prefill_chunk, options.max_seq);
  const int64_t pages = (options.max_seq + kPageTokens - 1) / kPageTokens;
  tower = std::make_unique<VisionTower>(files.config.vision, weights.vision, *backend,
                                        pixel_scale(files.preprocessor.image));
  decoder = std::make_unique<Decoder>(files.config, weights.decoder, *backend,
                                      Decoder::Shape{.max_rows = rows, .max_wanted = 1, .slots = pages * kPageTokens});
  runner = make_eager_runner(*backend, [d = decoder.get()](const Step& step) { return d->forward(step); },
                             {.max_rows = rows, .sequences = 1, .pages = pages});
}

std::string find_bad_weight(const Checkpoint& checkpoint) {
  for (const HostTensor& t : checkpoint.tensors()) {
    if (t.dtype != DType::kBF16) continue;
    const bf16* data = static_cast<const bf16*>(t.data);
    const bool bad = std::any_of(data, data + t.size(), [](bf16 v) { return (v.bits & 0x7f80) == 0x7f80; });
    if (bad) return fmt::format("{} in {}", t.name, checkpoint.file_of(t).filename().string());
  }
  return "";
}

}  // namespace vireo
