// A file of its own in the folder, kMark, tells what this tool made and may replace.
// SPDX-License-Identifier: Apache-2.0
#include "engine/random_checkpoint.h"

#include <fmt/format.h>

#include <set>

#include "engine/output_folder.h"
#include "engine/published_files.h"
#include "engine/published_shapes.h"
#include "engine/qwen3_tokenizer.h"
#include "engine/random_weights.h"
#include "files/json.h"
#include "files/output_file.h"
#include "files/quote.h"

namespace vireo {
namespace {

namespace fs = std::filesystem;

constexpr char kCommand[] = "random-checkpoint";
constexpr char kMark[] = "random_checkpoint.json";
constexpr int kMaxThreads = 1024;
constexpr uint64_t kSmallFiles = 16u << 20;  // room for everything but the weights

bool is_weight_file(const std::string& name) {
  return name.rfind("model", 0) == 0 && name.find(".safetensors") != std::string::npos;
}

// Whether everything in it can have come from this tool.
bool is_own_output(const fs::path& folder) {
  static const std::set<std::string> known = {
      kMark,
      "config.json",
      "generation_config.json",
      "preprocessor_config.json",
      "video_preprocessor_config.json",
      "tokenizer.json",
      "tokenizer_config.json",
      "chat_template.json",
  };
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || (known.count(name) == 0 && !is_weight_file(name))) return false;
  }
  return fs::exists(folder / kMark);
}

std::string mark_text(const ModelConfig& config, const RandomCheckpoint& o) {
  const Json mark = {{"made_by", std::string("vireo random-checkpoint ") + version()},
                     {"size", o.size},
                     {"seed", o.seed},
                     {"layers", config.text.num_layers},
                     {"vision_depth", config.vision.depth}};
  return mark.dump(2) + "\n";
}

void write_files(const fs::path& folder, const ModelConfig& config) {
  write_text_file(folder / "config.json", published_config_json(config));
  write_text_file(folder / "generation_config.json", published_generation_config_json(config));
  write_text_file(folder / "preprocessor_config.json", published_preprocessor_config_json(config.vision));
  write_text_file(folder / "video_preprocessor_config.json", published_video_preprocessor_config_json(config.vision));
  write_text_file(folder / "tokenizer.json", qwen3_tokenizer_json());
  write_text_file(folder / "tokenizer_config.json", qwen3_tokenizer_config_json());
  const Json chat_template = {{"chat_template", qwen3_vl_instruct_template()}};
  write_text_file(folder / "chat_template.json", chat_template.dump(2) + "\n");
}

void check(const RandomCheckpoint& o) {
  if (o.threads < 0 || o.threads > kMaxThreads) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--threads {} is out of range: use 1 to {}, or 0 for all", o.threads, kMaxThreads));
  }
}

void write_folder(const ModelConfig& config, const RandomCheckpoint& o, const Progress& progress) {
  check(o);
  const fs::path folder = output_path(o.folder);
  const std::vector<TensorShape> tensors = published_tensors(config);
  check_replaceable(folder, kCommand, is_own_output);
  check_space(folder, tensor_bytes(tensors) + kSmallFiles);
  PartialFolder partial(folder, kCommand, is_own_output);
  write_text_file(partial.path() / kMark, mark_text(config, o));
  write_files(partial.path(), config);
  write_random_weights(
      {.folder = partial.path(), .seed = o.seed, .max_shard_bytes = o.max_shard_bytes, .threads = o.threads}, tensors,
      progress);
  partial.keep();
}

}  // namespace

void write_random_checkpoint(const ModelConfig& config, const RandomCheckpoint& options, const Progress& progress) {
  write_output([&] { write_folder(config, options, progress); });
}

void write_random_checkpoint(const RandomCheckpoint& options, const Progress& progress) {
  write_random_checkpoint(published_config(options.size, options.layers, options.vision_depth), options, progress);
}

}  // namespace vireo
