// See quote.h.
// SPDX-License-Identifier: Apache-2.0
#include "files/quote.h"

#include <fmt/format.h>

#include <iterator>

namespace vireo {

std::string printable(std::string_view untrusted, size_t max_bytes) {
  std::string text;
  for (char c : untrusted.substr(0, max_bytes)) {
    if (c >= 0x20 && c < 0x7f) {
      text += c;
    } else {
      fmt::format_to(std::back_inserter(text), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (untrusted.size() > max_bytes) text += "...";
  return text;
}

std::string in_quotes(std::string_view untrusted) {
  return fmt::format("'{}'", printable(untrusted));
}

}  // namespace vireo
