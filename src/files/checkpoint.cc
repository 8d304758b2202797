// See checkpoint.h.
// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "files/json.h"
#include "files/mapped_file.h"
#include "files/quote.h"
#include "vireo/error.h"

namespace vireo {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxShards = 4096;
constexpr size_t kMaxIndexBytes = 64u << 20;

// Spellings of older and converted checkpoints. The published names start with none of these.
constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {
    {"visual.", "model.visual."},
    {"vision_tower.", "model.visual."},
    {"language_model.model.", "model.language_model."},
    {"language_model.lm_head.", "lm_head."},
    {"model.layers.", "model.language_model.layers."},
    {"model.embed_tokens.", "model.language_model.embed_tokens."},
    {"model.norm.", "model.language_model.norm."},
};

std::string published_name(const std::string& name) {
  for (const auto& [prefix, published] : kPrefixes) {
    if (name.starts_with(prefix)) return std::string(published) + name.substr(prefix.size());
  }
  return name;
}

// Tensor names by shard, in the order of the shards' names.
using ShardMap = std::map<std::string, std::vector<std::string>>;

void check_shard_name(const fs::path& index, const std::string& shard) {
  const auto is_allowed = [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f && c != '/' && c != '\\';
  };
  if (shard.ends_with(".safetensors") && shard[0] != '.' && shard.size() <= 255 &&
      std::ranges::all_of(shard, is_allowed)) {
    return;
  }
  throw Error(ErrorKind::kInput,
              fmt::format("{}: the shard name {} is not the name of a .safetensors file in the folder",
                          path_text(index), in_quotes(shard)));
}

ShardMap read_index(const fs::path& index) {
  const Json json = read_json(index, {.bytes = kMaxIndexBytes, .depth = 8});
  const Json* weight_map = find_key(json, "weight_map");
  if (!weight_map || !weight_map->is_object() || weight_map->empty()) {
    throw Error(ErrorKind::kInput, fmt::format("{}: 'weight_map' is missing or names no tensor", path_text(index)));
  }
  ShardMap shards;
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!shard.is_string()) {
      throw Error(ErrorKind::kInput,
                  fmt::format("{}: the shard of {} is no string", path_text(index), in_quotes(tensor)));
    }
    const std::string& name = shard.get_ref<const std::string&>();
    check_shard_name(index, name);
    shards[name].push_back(tensor);
    if (shards.size() > kMaxShards) {
      throw Error(ErrorKind::kInput, fmt::format("{} names more than {} shards", path_text(index), kMaxShards));
    }
  }
  return shards;
}

SafetensorsFile open_shard(const fs::path& folder, const std::string& shard, const std::vector<std::string>& names) {
  const fs::path path = folder / shard;
  if (!is_present(path)) {
    throw Error(ErrorKind::kNotFound,
                fmt::format("the shard {} that model.safetensors.index.json names is missing; fetch the checkpoint "
                            "again with `hf download ORG/NAME`",
                            path_text(path)));
  }
  SafetensorsFile file = SafetensorsFile::open(path);
  std::unordered_set<std::string_view> present;
  for (const HostTensor& tensor : file.tensors()) present.insert(tensor.name);
  for (const std::string& name : names) {
    if (present.count(name)) continue;
    throw Error(ErrorKind::kInput,
                fmt::format("the tensor {} is not in {}, where model.safetensors.index.json places it", in_quotes(name),
                            path_text(path)));
  }
  return file;
}

std::vector<SafetensorsFile> open_files(const fs::path& folder) {
  std::vector<SafetensorsFile> files;
  const fs::path single = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  if (is_present(single)) {
    files.push_back(SafetensorsFile::open(single));
  } else if (is_present(index)) {
    for (const auto& [shard, names] : read_index(index)) files.push_back(open_shard(folder, shard, names));
  } else {
    throw Error(ErrorKind::kNotFound,
                fmt::format("{} holds neither model.safetensors nor model.safetensors.index.json; a checkpoint is a "
                            "folder as `hf download ORG/NAME` leaves it",
                            path_text(folder)));
  }
  return files;
}

[[noreturn]] void fail_collision(const std::string& name, const fs::path& first, const fs::path& second) {
  throw Error(ErrorKind::kInput,
              fmt::format("the tensor {} occurs twice, under the same or another spelling: in {} and in {}",
                          in_quotes(name), path_text(first), path_text(second)));
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.files_ = open_files(folder);
  for (size_t f = 0; f < checkpoint.files_.size(); ++f) {
    for (HostTensor tensor : checkpoint.files_[f].tensors()) {
      tensor.name = published_name(tensor.name);
      const auto [found, added] = checkpoint.by_name_.emplace(tensor.name, checkpoint.tensors_.size());
      if (!added) {
        const size_t other = checkpoint.file_index_[found->second];
        fail_collision(tensor.name, checkpoint.files_[other].path(), checkpoint.files_[f].path());
      }
      checkpoint.tensors_.push_back(std::move(tensor));
      checkpoint.file_index_.push_back(f);
    }
  }
  return checkpoint;
}

const HostTensor* Checkpoint::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const HostTensor& Checkpoint::get(std::string_view name, const std::vector<int64_t>& shape) const {
  const HostTensor* tensor = find(name);
  if (!tensor) {
    throw Error(ErrorKind::kNotFound,
                fmt::format("the checkpoint {} has no tensor {} (expected: BF16 {}); its config.json and its weights "
                            "do not belong together or the weights are incomplete",
                            path_text(folder_), in_quotes(name), shape_text(shape)));
  }
  if (tensor->shape != shape) {
    throw Error(ErrorKind::kInput, fmt::format("{}: the tensor {} has the shape {}, but config.json asks for {}",
                                               path_text(file_of(*tensor)), in_quotes(name), shape_text(tensor->shape),
                                               shape_text(shape)));
  }
  if (tensor->dtype != DType::kBF16) {
    throw Error(ErrorKind::kInput,
                fmt::format("{}: the tensor {} has the dtype {}, but only BF16 is accepted; use the published BF16 "
                            "checkpoint or save this one with torch_dtype bfloat16",
                            path_text(file_of(*tensor)), in_quotes(name), name_of(tensor->dtype)));
  }
  if (reinterpret_cast<uintptr_t>(tensor->data) % size_of(tensor->dtype) != 0) {
    throw Error(ErrorKind::kInput,
                fmt::format("{}: the tensor {} begins at an odd byte of the file; save the checkpoint again with "
                            "safetensors 0.3 or later, which aligns tensors",
                            path_text(file_of(*tensor)), in_quotes(name)));
  }
  return *tensor;
}

const HostTensor& Checkpoint::get_coded(std::string_view name, const std::vector<int64_t>& shape, DType dtype) const {
  constexpr const char* kAgain = "write the folder again with `vireo quantize`";
  const HostTensor* t = find(name);
  if (!t) {
    throw Error(ErrorKind::kNotFound,
                fmt::format("the quantised checkpoint {} has no tensor {} (expected: {} {}): {}", path_text(folder_),
                            in_quotes(name), name_of(dtype), shape_text(shape), kAgain));
  }
  if (t->shape != shape || t->dtype != dtype || reinterpret_cast<uintptr_t>(t->data) % size_of(dtype) != 0) {
    const bool is_odd = t->shape == shape && t->dtype == dtype;
    throw Error(ErrorKind::kInput,
                fmt::format("{}: the tensor {} is {} {}{}, but config.json's quantization_config asks for {} {}: {}",
                            path_text(file_of(*t)), in_quotes(name), name_of(t->dtype), shape_text(t->shape),
                            is_odd ? " at an odd byte of the file" : "", name_of(dtype), shape_text(shape), kAgain));
  }
  return *t;
}

const fs::path& Checkpoint::file_of(const HostTensor& tensor) const {
  const size_t index = static_cast<size_t>(&tensor - tensors_.data());
  CHECK(index < tensors_.size());
  return files_[file_index_[index]].path();
}

uint64_t Checkpoint::tensor_bytes() const {
  uint64_t total = 0;
  for (const HostTensor& tensor : tensors_) total += tensor.bytes();
  return total;
}

void Checkpoint::leave_memory() const {
  for (const SafetensorsFile& file : files_) file.leave_memory();
}

}  // namespace vireo
