// See the header. Node 0 is the root.
// SPDX-License-Identifier: Apache-2.0
#include "text/added_matcher.h"

namespace vireo {
namespace {

uint64_t edge(uint32_t node, char byte) {
  return static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(byte);
}

}  // namespace

AddedMatcher::AddedMatcher(const std::vector<AddedToken>& tokens) : nodes_(1) {
  for (const AddedToken& token : tokens) {
    begins_[static_cast<unsigned char>(token.text[0])] = true;
    uint32_t node = 0;
    for (const char byte : token.text) {
      const auto [it, is_new] = next_.try_emplace(edge(node, byte), static_cast<uint32_t>(nodes_.size()));
      if (is_new) nodes_.emplace_back();
      node = it->second;
    }
    nodes_[node] = {token.id, token.special};
  }
}

AddedMatcher::Match AddedMatcher::longest(std::string_view text, size_t at, Tokenizer::Added added) const {
  Match best{at, 0, -1};
  uint32_t node = 0;
  for (size_t end = at; end < text.size();) {
    const auto it = next_.find(edge(node, text[end]));
    if (it == next_.end()) break;
    node = it->second;
    ++end;
    const Node& here = nodes_[node];
    const bool allowed = added == Tokenizer::Added::kAll || !here.special;
    if (here.id >= 0 && allowed) best = {at, end - at, here.id};
  }
  return best;
}

std::optional<AddedMatcher::Match> AddedMatcher::find(std::string_view text, size_t from,
                                                      Tokenizer::Added added) const {
  if (added == Tokenizer::Added::kNone) return std::nullopt;
  for (size_t at = from; at < text.size(); ++at) {
    if (!begins_[static_cast<unsigned char>(text[at])]) continue;
    if (const Match match = longest(text, at, added); match.length > 0) return match;
  }
  return std::nullopt;
}

}  // namespace vireo
