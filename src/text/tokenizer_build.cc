// See the header. Token texts in the file are written in the byte alphabet of GPT-2: printable Latin-1 stands
// for itself, the other 68 bytes in order for U+0100, U+0101, ...
// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_build.h"
#include "files/quote.h"

#include <fmt/format.h>

#include <unordered_set>

#include "text/hash.h"
#include "text/token_index.h"
#include "text/tokenizer_check.h"
#include "text/utf8.h"
#include "vireo/error.h"

namespace vireo {
namespace {

constexpr size_t kMaxAdded = 1 << 16;
constexpr size_t kMaxAddedBytes = 512;  // of one literal
constexpr char32_t kAlphabetEnd = 0x144;

struct ByteAlphabet {
  std::array<char32_t, 256> symbol{};
  std::array<int16_t, kAlphabetEnd> byte;  // -1 where no byte has that symbol

  ByteAlphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      symbol[static_cast<size_t>(b)] = itself ? static_cast<char32_t>(b) : next++;
      byte[symbol[static_cast<size_t>(b)]] = static_cast<int16_t>(b);
    }
  }

  // The text itself where it is not written in this alphabet.
  void decode(std::string_view text, std::string& bytes) const {
    bytes.clear();
    for (size_t at = 0; at < text.size();) {
      const Utf8Char next = next_utf8(text, at);
      at += next.length;
      if (next.code >= kAlphabetEnd || byte[next.code] < 0) {
        bytes = text;
        return;
      }
      bytes += static_cast<char>(byte[next.code]);
    }
  }
};

const ByteAlphabet& alphabet() {
  static const ByteAlphabet table;
  return table;
}

class Builder {
 public:
  explicit Builder(const TokenizerFile& file) : file_(file), ids_(file) {}

  TokenizerTables build() {
    check_pipeline(file_);
    add_vocab();
    add_merges();
    add_added();
    tables_.matcher = AddedMatcher(tables_.added);
    return std::move(tables_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::kInput, file_.name + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  void add_vocab() {
    std::string bytes;
    for (size_t i = 0; i < file_.vocab.size(); ++i) {
      const auto& entry = file_.vocab[i];
      const std::string_view token = file_.view(entry.token);
      if (tables_.tokens.has(entry.id)) {
        fail("model.vocab gives the id {} twice, again for {}", entry.id, in_quotes(token));
      }
      if (!ids_.add(i)) fail("model.vocab has the token {} twice", in_quotes(token));
      alphabet().decode(token, bytes);
      tables_.tokens.set(entry.id, bytes, false);
    }
  }

  std::array<int32_t, 256> byte_ids() const {
    std::array<int32_t, 256> ids;
    for (size_t b = 0; b < 256; ++b) {
      std::string symbol;
      append_utf8(symbol, alphabet().symbol[b]);
      const auto id = ids_.find(symbol);
      if (!id) fail("model.vocab has no token for the byte {}", b);
      ids[b] = *id;
    }
    return ids;
  }

  int32_t id_of(std::string_view token, size_t merge) const {
    const auto id = ids_.find(token);
    if (!id) fail("model.merges[{}] needs the token {}, which is not in model.vocab", merge, in_quotes(token));
    return *id;
  }

  void add_merges() {
    MergeTable merges(file_.merges.size());
    std::string joined;
    for (size_t i = 0; i < file_.merges.size(); ++i) {
      const std::string_view left = file_.view(file_.merges[i].left), right = file_.view(file_.merges[i].right);
      joined.assign(left).append(right);
      const Merge merge{static_cast<uint32_t>(i), id_of(joined, i)};
      merges.set(id_of(left, i), id_of(right, i), merge);
    }
    tables_.bpe = Bpe(byte_ids(), std::move(merges));
  }

  void add_added() {
    const auto it = file_.rest.find("added_tokens");
    if (it == file_.rest.end() || it->is_null()) return;
    if (!it->is_array()) fail("added_tokens is not a list");
    if (it->size() > kMaxAdded) fail("added_tokens has {} entries; at most {} are taken", it->size(), kMaxAdded);
    for (size_t i = 0; i < it->size(); ++i) add_added_token((*it)[i], fmt::format("added_tokens[{}]", i));
  }

  // `normalized` is not looked at: it only matters where NFC would change the characters around a literal.
  void add_added_token(const Json& entry, const std::string& where) {
    const std::string what = file_.name + ": " + where;
    if (!entry.is_object()) fail("{} is not an object", where);
    AddedToken token;
    token.text = get_string_or(entry, "content", what, "");
    token.id = static_cast<int32_t>(get_int(entry, "id", what, 0, kMaxTokens - 1));
    token.special = get_bool_or(entry, "special", what, false);
    for (const char* key : {"lstrip", "rstrip", "single_word"}) {
      if (get_bool_or(entry, key, what, false))
        fail(
            "{}.{} is true, and added tokens are only matched with it false: use the checkpoint's published "
            "tokenizer.json",
            where, key);
    }
    if (token.text.empty()) fail("{}.content is empty or missing", where);
    if (token.text.size() > kMaxAddedBytes) {
      fail("{}.content has {} bytes; at most {} are taken", where, token.text.size(), kMaxAddedBytes);
    }
    claim(token, where);
    tables_.tokens.set(token.id, token.text, token.special);
    tables_.added.push_back(std::move(token));
  }

  // An id may be that of a vocabulary entry of the same text, never of anything else.
  void claim(const AddedToken& token, const std::string& where) {
    if (!added_texts_.insert(token.text).second) fail("{} repeats the token {}", where, in_quotes(token.text));
    const bool same_as_vocab = ids_.find(token.text) == token.id;
    if (!added_ids_.insert(token.id).second || (tables_.tokens.has(token.id) && !same_as_vocab)) {
      fail("{} ({}) has the id {}, which another token has", where, in_quotes(token.text), token.id);
    }
  }

  const TokenizerFile& file_;
  TokenizerTables tables_;
  TokenIndex ids_;
  std::unordered_set<std::string, HashBytes> added_texts_;
  std::unordered_set<int32_t> added_ids_;
};

}  // namespace

std::string_view TokenBytes::of(int32_t id) const {
  if (!has(id)) return {};
  const Span& span = spans_[static_cast<size_t>(id)];
  return std::string_view(text_).substr(span.at, span.size);
}

void TokenBytes::set(int32_t id, std::string_view bytes, bool special) {
  if (id >= size()) spans_.resize(static_cast<size_t>(id) + 1);
  spans_[static_cast<size_t>(id)] = {static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(bytes.size()), true,
                                     special};
  text_ += bytes;
}

TokenizerTables build_tokenizer(const TokenizerFile& file) {
  return Builder(file).build();
}

}  // namespace vireo
