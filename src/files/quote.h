// Untrusted bytes and names of files made fit for an error sentence: printable, of bounded length.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace vireo {

// Bytes outside printable ASCII become \xNN; longer texts are clipped and end in "...".
std::string printable(std::string_view untrusted, size_t max_bytes = 120);
// The same in single quotes (std::quoted is another thing).
std::string in_quotes(std::string_view untrusted);
// A path as its owner knows it, in any language; control characters become \xNN, and of a very long one the end is kept.
std::string path_text(const std::filesystem::path& path);

}  // namespace vireo
