// A checkpoint is written beside its place and renamed when it is whole, so that a folder of that name is never a part of
// one; a file of its own, kMark, tells what this tool made and may replace.
// SPDX-License-Identifier: Apache-2.0
#include "engine/random_checkpoint.h"

#include <fmt/format.h>

#include <set>

#include "engine/published_files.h"
#include "engine/published_shapes.h"
#include "engine/qwen3_tokenizer.h"
#include "engine/random_weights.h"
#include "files/json.h"
#include "files/quote.h"

namespace vireo {
namespace {

namespace fs = std::filesystem;

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

void check_replaceable(const fs::path& path) {
  if (!fs::exists(fs::symlink_status(path))) return;
  if (!fs::is_directory(fs::symlink_status(path))) {
    throw Error(ErrorKind::kUsage, fmt::format("{} is not a folder; name another one with --out", path_text(path)));
  }
  if (fs::is_empty(path) || is_own_output(path)) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("{} holds files that random-checkpoint did not write; empty it, or name another folder with "
                          "--out",
                          path_text(path)));
}

void check_space(const fs::path& folder, uint64_t need) {
  fs::path place = folder;
  while (!fs::exists(place)) place = place.parent_path();
  const uint64_t have = fs::space(place).available;
  if (have >= need) return;
  const auto gb = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  throw Error(ErrorKind::kCapacity, fmt::format("the checkpoint needs {:.2f} GB and the disk of {} has {:.2f} GB free; "
                                                "free some, or name a folder elsewhere with --out",
                                                gb(need), path_text(folder), gb(have)));
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

// A folder under another name until keep() is called; removed again when it is not.
class PartialFolder {
 public:
  explicit PartialFolder(const fs::path& final_path) : final_(final_path), path_(final_path.string() + ".partial") {
    check_replaceable(path_);
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder() {
    std::error_code ignored;
    if (!kept_) fs::remove_all(path_, ignored);
  }

  const fs::path& path() const { return path_; }
  void keep() {
    fs::remove_all(final_);
    fs::rename(path_, final_);
    kept_ = true;
  }

 private:
  fs::path final_, path_;
  bool kept_ = false;
};

// The folder as a path that has a name and a parent, with symbolic links resolved.
fs::path output_folder(const RandomCheckpoint& o) {
  const fs::path path = fs::weakly_canonical(fs::absolute(o.folder));
  return path.has_filename() ? path : path.parent_path();
}

void check(const RandomCheckpoint& o) {
  if (o.threads < 0 || o.threads > kMaxThreads) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--threads {} is out of range: use 1 to {}, or 0 for all", o.threads, kMaxThreads));
  }
  if (o.folder.empty()) throw Error(ErrorKind::kUsage, "--out is empty; name the folder to write");
}

void write_folder(const ModelConfig& config, const RandomCheckpoint& o, const Progress& progress) {
  check(o);
  const fs::path folder = output_folder(o);
  const std::vector<TensorShape> tensors = published_tensors(config);
  check_replaceable(folder);
  check_space(folder, tensor_bytes(tensors) + kSmallFiles);
  PartialFolder partial(folder);
  write_text_file(partial.path() / kMark, mark_text(config, o));
  write_files(partial.path(), config);
  write_random_weights(
      {.folder = partial.path(), .seed = o.seed, .max_shard_bytes = o.max_shard_bytes, .threads = o.threads}, tensors,
      progress);
  partial.keep();
}

}  // namespace

void write_random_checkpoint(const ModelConfig& config, const RandomCheckpoint& options, const Progress& progress) {
  try {
    write_folder(config, options, progress);
  } catch (const fs::filesystem_error& e) {
    throw Error(ErrorKind::kInput, fmt::format("cannot write {}: {}; name another folder with --out",
                                               path_text(e.path1()), e.code().message()));
  }
}

void write_random_checkpoint(const RandomCheckpoint& options, const Progress& progress) {
  write_random_checkpoint(published_config(options.size, options.layers, options.vision_depth), options, progress);
}

}  // namespace vireo
