// Base64 of data: URIs: the standard and the URL-safe alphabet, white space skipped, padding optional.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace vireo {

// Nothing when a character is in neither alphabet or the length is impossible.
std::optional<std::vector<std::byte>> decode_base64(std::string_view text);

}  // namespace vireo
