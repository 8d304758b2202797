// UTF-8, one character at a time, with the Unicode Standard's "one U+FFFD per maximal ill-formed
// subsequence".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vireo {

constexpr char32_t kReplacement = 0xFFFD;

// The character at `at`, or the maximal ill-formed subsequence there: its length, with code kReplacement.
// `incomplete` says that the text ended inside a character that was valid so far.
struct Utf8Char {
  char32_t code;
  uint32_t length;
  bool valid;
  bool incomplete;
};
Utf8Char next_utf8_sequence(std::string_view text, size_t at);  // the same for bytes from 0x80 on
inline Utf8Char next_utf8(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  return first < 0x80 ? Utf8Char{first, 1, true, false} : next_utf8_sequence(text, at);
}

void append_utf8(std::string& text, char32_t code);

bool is_utf8(std::string_view text);
// `text` with U+FFFD for whatever is ill-formed.
std::string repair_utf8(std::string_view text);

}  // namespace vireo
