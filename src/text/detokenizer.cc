// See tokenizer.h.
// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace vireo {

std::string Detokenizer::push(int32_t id) {
  held_ += tokenizer_->bytes(id, skip_special_);
  std::string shown;
  size_t at = 0;
  while (at < held_.size()) {
    const Utf8Char next = next_utf8(held_, at);
    if (next.incomplete) break;
    append_utf8(shown, next.code);
    at += next.length;
  }
  held_.erase(0, at);
  return shown;
}

std::string Detokenizer::flush() {
  std::string shown;
  if (!held_.empty()) append_utf8(shown, kReplacement);
  held_.clear();
  return shown;
}

}  // namespace vireo
