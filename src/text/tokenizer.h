// Byte-level BPE of the Qwen family from tokenizer.json: NFC, the exact split over a pinned Unicode table,
// merges by rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vireo {

struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool special = false;  // dropped from shown text
};

class Tokenizer {
 public:
  // Throws Error(kNotFound, kInput) naming the file and what differs from the byte-level BPE that is
  // implemented (another model type, normalizer, pre-tokenizer pattern, an id twice, a merge of unknown
  // tokens, ...).
  static Tokenizer load(const std::filesystem::path& tokenizer_json);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Which added tokens are recognised in a text; everything else is plain text.
  enum class Added { kNone, kNonSpecial, kAll };
  struct Piece {
    std::string text;
    Added added = Added::kNone;
  };
  // The pieces are encoded as one text: merges cross piece borders exactly as if they had been one string,
  // but an added token is only recognised where it lies wholly inside a piece that allows it. Invalid UTF-8
  // is taken as U+FFFD.
  std::vector<int32_t> encode(std::span<const Piece> pieces) const;
  std::vector<int32_t> encode(std::string_view text, Added added) const;

  // Bytes of one token (not necessarily whole characters); nothing for ids past the vocabulary, and for
  // special tokens when `skip_special`.
  std::string_view bytes(int32_t id, bool skip_special) const;
  // All tokens, invalid UTF-8 replaced by U+FFFD (one per maximal ill-formed subsequence).
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  std::optional<int32_t> find_added(std::string_view text) const;
  const std::vector<AddedToken>& added_tokens() const;
  // One more than the largest id.
  int32_t size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Turns a stream of tokens into whole characters: holds back an incomplete UTF-8 tail, replaces bytes that
// can no longer become valid at once.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special) : tokenizer_(&tokenizer), skip_special_(skip_special) {}
  // The text that this token completes; may be empty.
  std::string push(int32_t id);
  // What is still held, as U+FFFD.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string held_;
};

}  // namespace vireo
