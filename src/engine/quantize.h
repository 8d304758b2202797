// What a quantised checkpoint has in which tier.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "model/projections.h"
#include "vireo/tools.h"

namespace vireo {

// By projection, then tier, in the order of tier_projections(). Empty where the config is not of a quantised checkpoint.
std::vector<StoredTier> stored_tiers(const ModelConfig& config);

}  // namespace vireo
