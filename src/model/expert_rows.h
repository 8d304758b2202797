// Where a checkpoint has the matrices of a layer's experts. Three layouts are in use: one tensor per expert and projection, and stacked
// [E, in, out] (published) or [E, out, in] (saved by transformers 5.x).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "files/checkpoint.h"
#include "model/projections.h"
#include "ops/weights.h"

namespace vireo {

struct ExpertRows {
  std::vector<std::vector<HostTensor>> experts;  // the parts of each
  ExpertLayout layout = ExpertLayout::kOutIn;
};

// Throws Error naming the tensor, the file and both values.
ExpertRows expert_rows(const Checkpoint& checkpoint, const ModelConfig& config, const Projection& projection);

// Whether a layer's stacked experts are [E, out, in]: the shape of down_proj tells, and where there is none in BF16 the
// quantization_config.
bool stacks_out_in(const Checkpoint& checkpoint, const ModelConfig& config, int layer);

}  // namespace vireo
