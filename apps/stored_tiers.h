// What a quantised checkpoint has in which tier, as quantize and inspect tell it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "vireo/tools.h"

namespace vireo::app {

nlohmann::ordered_json tiers_json(const std::vector<StoredTier>& tiers);
void print_tiers(const std::vector<StoredTier>& tiers);

}  // namespace vireo::app
