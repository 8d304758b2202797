// Text of a vocabulary entry -> its id: open addressing over the file's own strings, because the official file asks
// 600,000 such questions at every start.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/hash.h"
#include "text/tokenizer_file.h"

namespace vireo {

// Refers to `file`, which outlives it.
class TokenIndex {
 public:
  explicit TokenIndex(const TokenizerFile& file)
      : file_(file), slots_(std::bit_ceil(file.vocab.size() * 3 / 2 + 2), Slot{0, kFree}) {}

  // Adds entry `entry` of file.vocab; false when its text is there already.
  bool add(size_t entry) {
    const std::string_view token = file_.view(file_.vocab[entry].token);
    const uint64_t hash = hash_(token);
    Slot& slot = slots_[slot_of(token, hash)];
    if (slot.entry != kFree) return false;
    slot = {tag_of(hash), static_cast<uint32_t>(entry)};
    return true;
  }

  std::optional<int32_t> find(std::string_view token) const {
    const Slot& slot = slots_[slot_of(token, hash_(token))];
    if (slot.entry == kFree) return std::nullopt;
    return file_.vocab[slot.entry].id;
  }

 private:
  static constexpr uint32_t kFree = ~0u;
  struct Slot {
    uint32_t tag, entry;
  };

  static uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

  size_t slot_of(std::string_view token, uint64_t hash) const {
    size_t at = hash & (slots_.size() - 1);
    while (slots_[at].entry != kFree) {
      if (slots_[at].tag == tag_of(hash) && file_.view(file_.vocab[slots_[at].entry].token) == token) break;
      at = (at + 1) & (slots_.size() - 1);
    }
    return at;
  }

  const TokenizerFile& file_;
  HashBytes hash_;
  std::vector<Slot> slots_;
};

}  // namespace vireo
