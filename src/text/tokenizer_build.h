// From the file's tables to those that encode and decode, with every check on what the file may say.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/added_matcher.h"
#include "text/bpe.h"
#include "text/tokenizer.h"
#include "text/tokenizer_file.h"

namespace vireo {

// The bytes of every token, by id.
class TokenBytes {
 public:
  int32_t size() const { return static_cast<int32_t>(spans_.size()); }
  bool has(int32_t id) const { return id >= 0 && id < size() && spans_[static_cast<size_t>(id)].taken; }
  bool is_special(int32_t id) const { return has(id) && spans_[static_cast<size_t>(id)].special; }
  std::string_view of(int32_t id) const;
  // `id` is below kMaxTokens; a token given again is replaced.
  void set(int32_t id, std::string_view bytes, bool special);

 private:
  struct Span {
    uint32_t at = 0, size = 0;
    bool taken = false, special = false;
  };
  std::string text_;
  std::vector<Span> spans_;
};

struct TokenizerTables {
  TokenBytes tokens;
  Bpe bpe;
  std::vector<AddedToken> added;
  AddedMatcher matcher;
};

// Throws Error(kInput) naming the file and the thing that is wrong or that byte-level BPE of the Qwen family
// does not have.
TokenizerTables build_tokenizer(const TokenizerFile& file);

}  // namespace vireo
