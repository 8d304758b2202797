// The pre-tokenizer of the Qwen family: the split that this regular expression makes, by hand, over code
// points.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace vireo {

constexpr char kSplitPattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Where the piece that begins at `begin` ends: the first alternative of kSplitPattern that matches there.
// `text` is valid UTF-8, `begin` a character's first byte. Splitting a whole text takes linear time, and the
// pieces cover it.
size_t split_end(std::string_view valid_utf8, size_t begin);

}  // namespace vireo
