// Values of Options that need parsing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace vireo {

// Nothing for "auto" and "none". Throws Error(kUsage).
std::optional<int64_t> parse_max_pixels(const std::string& value);

}  // namespace vireo
