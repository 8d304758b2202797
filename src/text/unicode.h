// What the pre-tokenizer asks of a code point, from a table pinned to one Unicode version (kept in the
// repository, so that token ids do not depend on the machine that builds), and canonical composition (NFC).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vireo {

// General categories L* and N*, and the White_Space property; the three are disjoint.
enum class CharClass : uint8_t { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3 };

CharClass char_class(char32_t code);
inline bool is_letter(char32_t code) {
  return char_class(code) == CharClass::kLetter;
}
inline bool is_number(char32_t code) {
  return char_class(code) == CharClass::kNumber;
}
inline bool is_space(char32_t code) {
  return char_class(code) == CharClass::kSpace;
}

// "14.0.0": the version of the table. NFC comes from utf8proc; it is stable across versions for assigned
// characters.
const char* unicode_version();

// True when every code point is below U+0300, which makes a text NFC. False says nothing.
bool surely_nfc(std::string_view valid_utf8);
// Time is n log n even for hostile runs of combining marks.
std::string to_nfc(std::string_view valid_utf8);

}  // namespace vireo
