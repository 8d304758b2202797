// SPDX-License-Identifier: Apache-2.0
#include "engine/base64.h"

#include <cstdint>

namespace vireo {
namespace {

int value_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+' || c == '-') return 62;
  if (c == '/' || c == '_') return 63;
  return -1;
}

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

}  // namespace

std::optional<std::vector<std::byte>> decode_base64(std::string_view text) {
  std::vector<std::byte> out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int count = 0, padding = 0, digits = 0;
  for (char c : text) {
    if (is_space(c)) continue;
    if (c == '=') {
      if (++padding > 2) return std::nullopt;
      continue;
    }
    const int value = value_of(c);
    if (value < 0 || padding > 0) return std::nullopt;
    bits = (bits << 6) | static_cast<uint32_t>(value);
    count += 6;
    ++digits;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<std::byte>((bits >> count) & 0xff));
    }
  }
  if (digits % 4 == 1) return std::nullopt;
  return out;
}

}  // namespace vireo
