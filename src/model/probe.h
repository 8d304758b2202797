// Probe: sees every named intermediate of the model while it runs ("vision.block.3", "lm.layer.7"), for comparison with stored
// outputs, to name the first tensor that is not finite, and to learn what projections read ("lm.in.mlp_down.7"; lm_head reads "lm.norm").
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "base/tensor.h"

namespace vireo {

using Probe = std::function<void(const std::string& name, Tensor tensor)>;

}  // namespace vireo
