// For tests: the random mixture of experts in every layout that checkpoints have.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "files/checkpoint.h"
#include "files/output_file.h"
#include "files/shard.h"

namespace vireo {

inline const std::string kExperts = VIREO_TEST_DATA "/goldens/random_moe/checkpoint";

enum class Stored { kOutIn, kInOut, kApart };
inline constexpr Stored kAllStored[] = {Stored::kOutIn, Stored::kInOut, Stored::kApart};

class StoredExperts {
 public:
  // Writes kExperts, which is [E, out, in], to a folder in another layout; experts that lie apart are in two files in turns.
  StoredExperts(const std::filesystem::path& folder, Stored stored) : source_(Checkpoint::open(kExperts)) {
    std::filesystem::create_directories(folder);
    for (const auto& entry : std::filesystem::directory_iterator(kExperts)) {
      if (entry.path().extension() != ".safetensors") std::filesystem::copy(entry.path(), folder);
    }
    for (const HostTensor& t : source_.tensors()) {
      const bool is_expert = t.name.find(".mlp.experts.") != std::string::npos;
      if (!is_expert || stored == Stored::kOutIn) {
        shards_[0].tensors.push_back(t);
      } else if (stored == Stored::kInOut) {
        shards_[0].tensors.push_back(turned(t));
      } else {
        split(t);
      }
    }
    for (const Shard& shard : shards_) write(folder / shard.file, shard);
    write_text_file(folder / "model.safetensors.index.json", shard_index({shards_[0], shards_[1]}));
  }

 private:
  HostTensor turned(const HostTensor& t) {
    const int64_t out = t.shape[1], in = t.shape[2];
    const auto* from = static_cast<const bf16*>(t.data);
    std::vector<bf16>& to = memory_.emplace_back(static_cast<size_t>(t.size()));
    for (int64_t i = 0; i < t.size(); ++i) {
      const int64_t e = i / (out * in), o = i / in % out, k = i % in;
      to[static_cast<size_t>((e * in + k) * out + o)] = from[i];
    }
    return {t.name, t.dtype, {t.shape[0], in, out}, to.data()};
  }

  void split(const HostTensor& t) {
    const bool is_up = t.name.ends_with("gate_up_proj");
    const std::string prefix = t.name.substr(0, t.name.rfind('.') + 1);
    const std::vector<const char*> names = is_up ? std::vector{"gate_proj", "up_proj"} : std::vector{"down_proj"};
    const int64_t rows = t.shape[1] / static_cast<int64_t>(names.size()), in = t.shape[2];
    const auto* from = static_cast<const bf16*>(t.data);
    for (int64_t e = 0; e < t.shape[0]; ++e) {
      for (const char* name : names) {
        shards_[static_cast<size_t>(e % 2)].tensors.push_back(
            {prefix + std::to_string(e) + "." + name + ".weight", t.dtype, {rows, in}, from});
        from += rows * in;
      }
    }
  }

  static void write(const std::filesystem::path& path, const Shard& shard) {
    std::string bytes = shard_header(shard);
    for (const HostTensor& t : shard.tensors) bytes.append(static_cast<const char*>(t.data), t.bytes());
    write_text_file(path, bytes);
  }

  const Checkpoint source_;
  std::deque<std::vector<bf16>> memory_;
  Shard shards_[2] = {{"model-00001-of-00002.safetensors", {}}, {"model-00002-of-00002.safetensors", {}}};
};

}  // namespace vireo
