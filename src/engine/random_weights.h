// Random tensors into safetensors files, as one file or as shards with their index.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "engine/published_shapes.h"
#include "vireo/vireo.h"

namespace vireo {

struct RandomWeights {
  std::filesystem::path folder;  // exists
  uint64_t seed = 0;
  uint64_t max_shard_bytes = 0;  // of tensor data; a larger tensor has a shard of its own
  int threads = 0;
};

uint64_t tensor_bytes(const std::vector<TensorShape>& tensors);

// Values that keep activations near 1 through any number of layers, so that logits are finite and spread. The bytes
// depend on the seed and the shapes alone. Throws Error naming the file when it cannot be written.
void write_random_weights(const RandomWeights& options, const std::vector<TensorShape>& tensors,
                          const Progress& progress);

}  // namespace vireo
