// Safetensors files to be written: their headers, and the index of several.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace vireo {

// One file. The tensors' data lies in their order, one after the other; `data` of the tensors is not looked at.
struct Shard {
  std::string file;
  std::vector<HostTensor> tensors;
};

// With the eight bytes of its length in front and padded, so that the data behind it is aligned to 64 bytes.
std::string shard_header(const Shard& shard);
// The text of model.safetensors.index.json.
std::string shard_index(const std::vector<Shard>& shards);
// Of the tensors' data.
uint64_t shard_bytes(const std::vector<Shard>& shards);

}  // namespace vireo
