// What conversations teach about a checkpoint: what its projections read, and by which factors to fold outliers of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/model.h"
#include "model/folding.h"
#include "model/input_factor.h"
#include "vireo/tools.h"

namespace vireo {

// What a projection read, and which of CalibrationResult::projections it is.
struct CalibratedInputs {
  InputRows rows;
  size_t projection = 0;
};

// By the names of the checkpoint to be written.
struct CalibrationResult {
  Folds folds;
  std::unordered_map<std::string, std::shared_ptr<const CalibratedInputs>> inputs;  // of rows, by their name
  std::vector<CalibratedProjection> projections;                                    // without their errors
};

// Of the projections that `made` has in a tier, experts aside; those that is_folded() get factors. Loads the source in BF16 on the CPU. Throws
// Error naming the conversation.
CalibrationResult calibrate(const Quantize& options, const ModelFiles& source, const ModelConfig& made,
                            const OnStage& on_stage);

// Whether --calibrate changes how a projection is quantised.
bool is_calibrated(const Projection& projection, const ModelConfig& made);

}  // namespace vireo
