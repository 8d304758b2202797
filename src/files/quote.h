// Untrusted bytes made fit for an error sentence: printable ASCII, bounded length.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vireo {

// Bytes outside printable ASCII become \xNN; longer texts are clipped and end in "...".
std::string printable(std::string_view untrusted, size_t max_bytes = 120);
// The same in single quotes (std::quoted is another thing).
std::string in_quotes(std::string_view untrusted);

}  // namespace vireo
