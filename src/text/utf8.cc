// Table 3-7 of the Unicode Standard as code.
// SPDX-License-Identifier: Apache-2.0
#include "text/utf8.h"

namespace vireo {
namespace {

struct Lead {
  uint32_t length;          // 0: no character begins with this byte
  unsigned char low, high;  // bounds of the second byte
};

Lead lead_of(unsigned char byte) {
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0)
    return {3, static_cast<unsigned char>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(byte == 0xED ? 0x9F : 0xBF)};
  if (byte < 0xF5)
    return {4, static_cast<unsigned char>(byte == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(byte == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

}  // namespace

Utf8Char next_utf8_sequence(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {kReplacement, 1, false, false};
  char32_t code = first & (0x7Fu >> lead.length);
  for (uint32_t i = 1; i < lead.length; ++i) {
    if (at + i == text.size()) return {kReplacement, i, false, true};
    const auto byte = static_cast<unsigned char>(text[at + i]);
    const bool fits = i == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xC0) == 0x80;
    if (!fits) return {kReplacement, i, false, false};
    code = code << 6 | (byte & 0x3F);
  }
  return {code, lead.length, true, false};
}

void append_utf8(std::string& text, char32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
    return;
  }
  const int tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr unsigned kLead[] = {0, 0xC0, 0xE0, 0xF0};
  text += static_cast<char>(kLead[tail] | static_cast<unsigned>(code >> (6 * tail)));
  for (int i = tail - 1; i >= 0; --i) text += static_cast<char>(0x80 | (code >> (6 * i) & 0x3F));
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = next_utf8(text, at);
    if (!next.valid) return false;
    at += next.length;
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = next_utf8(text, at);
    if (next.valid) {
      repaired.append(text, at, next.length);
    } else {
      append_utf8(repaired, kReplacement);
    }
    at += next.length;
  }
  return repaired;
}

}  // namespace vireo
