// A Hugging Face checkpoint folder as a set of named tensors and JSON files, whatever its sharding and
// whichever of the known name spellings it uses. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/tensor.h"
#include "files/safetensors.h"

namespace vireo {

class Checkpoint {
 public:
  // `folder` holds config.json and either model.safetensors or the shards that model.safetensors.index.json
  // names. Every shard named by the index must exist, every tensor of the weight map must be in the shard it
  // names, and no tensor may occur twice. Throws Error naming the file.
  static Checkpoint open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }

  // Names are the published ones ("model.language_model.layers.0.mlp.down_proj.weight"), also where the files
  // spell them otherwise. Null when absent.
  const HostTensor* find(std::string_view name) const;
  // Throws Error naming the tensor, the file and both values when the tensor is absent, its shape differs or
  // its dtype is not BF16.
  const HostTensor& get(std::string_view name, const std::vector<int64_t>& shape) const;
  // The same of a tensor that `vireo quantize` wrote, of any type.
  const HostTensor& get_coded(std::string_view name, const std::vector<int64_t>& shape, DType dtype) const;

  // All tensors, file by file, in the order of their data.
  const std::vector<HostTensor>& tensors() const { return tensors_; }
  // The file that holds a tensor of tensors().
  const std::filesystem::path& file_of(const HostTensor& tensor) const;
  uint64_t tensor_bytes() const;
  // As SafetensorsFile has it, for all files.
  void leave_memory() const;

 private:
  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::vector<HostTensor> tensors_;
  std::vector<size_t> file_index_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace vireo
