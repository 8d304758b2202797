// The power mode of a Jetson, which bounds its clocks and cores.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>

#include "vireo/tools.h"

namespace vireo {

// Of nvpmodel's configuration and state; nothing where either cannot be read or does not say.
std::optional<Finding> power_mode(const std::filesystem::path& configuration = "/etc/nvpmodel.conf",
                                  const std::filesystem::path& status = "/var/lib/nvpmodel/status");

}  // namespace vireo
