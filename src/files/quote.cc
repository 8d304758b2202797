// See quote.h.
// SPDX-License-Identifier: Apache-2.0
#include "files/quote.h"

#include <fmt/format.h>

#include <algorithm>

namespace vireo {
namespace {

constexpr size_t kMaxPathBytes = 1000;

std::string escaped(char c) {
  return fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
}

// Bytes of the control character of ASCII or of Latin-1 (in UTF-8) that the text begins with; 0 when it is another.
size_t control_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0xff; };
  if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
  return byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) < 0xa0 ? 2 : 0;
}

}  // namespace

std::string printable(std::string_view untrusted, size_t max_bytes) {
  std::string text;
  for (char c : untrusted.substr(0, max_bytes)) {
    if (c >= 0x20 && c < 0x7f) {
      text += c;
    } else {
      text += escaped(c);
    }
  }
  if (untrusted.size() > max_bytes) text += "...";
  return text;
}

std::string in_quotes(std::string_view untrusted) {
  return fmt::format("'{}'", printable(untrusted));
}

std::string path_text(const std::filesystem::path& path) {
  std::string_view rest = path.native();
  std::string text;
  if (rest.size() > kMaxPathBytes) {
    rest.remove_prefix(rest.size() - kMaxPathBytes);
    text = "...";
  }
  while (!rest.empty()) {
    const size_t control = control_bytes(rest), taken = std::max<size_t>(control, 1);
    for (char c : rest.substr(0, taken)) text += control ? escaped(c) : std::string(1, c);
    rest.remove_prefix(taken);
  }
  return text;
}

}  // namespace vireo
