// The sizes of the published Qwen3-VL models, for the tool that writes checkpoints like them; nothing that runs a model
// looks here.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace vireo {

// Throws Error(kUsage) with the list of sizes. 0 layers or depth: all of them. A cut tower keeps as many DeepStack layers
// as it and the language model allow.
ModelConfig published_config(const std::string& size, int layers, int vision_depth);

struct TensorShape {
  std::string name;
  std::vector<int64_t> shape;
  int64_t size() const;
};

// The tensors of a published checkpoint of this config, experts as [expert, in, out].
std::vector<TensorShape> published_tensors(const ModelConfig& config);

}  // namespace vireo
