// What conversations teach about a checkpoint: how large the inputs of its projections are, and by which factors to fold them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/model.h"
#include "model/folding.h"
#include "vireo/tools.h"

namespace vireo {

struct Folding {
  // By the names of the checkpoint to be written.
  Folds folds;
  std::unordered_map<std::string, std::vector<float>> importance;  // of the inputs, for quantize_row_fitted
  std::vector<FoldedProjection> projections;
};

// Of the projections that `made` has in a tier of 4 bits. Loads the source in BF16 on the CPU. Throws Error naming the conversation.
Folding find_folding(const Quantize& options, const ModelFiles& source, const ModelConfig& made,
                     const OnStage& on_stage);

}  // namespace vireo
