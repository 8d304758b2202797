// Finds added tokens in raw text: at each place the longest literal that begins there, through a trie over
// bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer.h"

namespace vireo {

class AddedMatcher {
 public:
  AddedMatcher() = default;
  explicit AddedMatcher(const std::vector<AddedToken>& tokens);

  struct Match {
    size_t at, length;
    int32_t id;
  };
  // The leftmost-longest literal at or after `from` of the kinds that `added` allows.
  std::optional<Match> find(std::string_view text, size_t from, Tokenizer::Added added) const;

 private:
  struct Node {
    int32_t id = -1;  // of the literal that ends here
    bool special = false;
  };
  Match longest(std::string_view text, size_t at, Tokenizer::Added added) const;

  std::vector<Node> nodes_;
  std::unordered_map<uint64_t, uint32_t> next_;  // node << 8 | byte -> node
  std::array<bool, 256> begins_{};               // some literal begins with this byte
};

}  // namespace vireo
