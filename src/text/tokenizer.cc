// Encoding: added tokens first, then NFC, split and merges over the stretches of plain text between them.
// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <fmt/format.h>

#include "text/split.h"
#include "text/tokenizer_build.h"
#include "text/unicode.h"
#include "text/utf8.h"
#include "vireo/error.h"

namespace vireo {

// Bounds the memory of one encoding: a piece without a split needs about 30 times its bytes.
constexpr size_t kMaxTextBytes = 16u << 20;

struct Tokenizer::Impl : TokenizerTables {};

namespace {

// Gathers plain text until an added token or the end, then encodes it as one.
class Encoder {
 public:
  explicit Encoder(const TokenizerTables& tables) : tables_(tables) {}

  void add(std::string_view text, Tokenizer::Added added) {
    size_t at = 0;
    while (const auto match = tables_.matcher.find(text, at, added)) {
      stretch_ += text.substr(at, match->at - at);
      flush();
      ids_.push_back(match->id);
      at = match->at + match->length;
    }
    stretch_ += text.substr(at);
  }

  std::vector<int32_t> finish() {
    flush();
    return std::move(ids_);
  }

 private:
  void flush() {
    if (!is_utf8(stretch_)) stretch_ = repair_utf8(stretch_);
    if (!surely_nfc(stretch_)) stretch_ = to_nfc(stretch_);
    const std::string_view text = stretch_;
    for (size_t at = 0; at < text.size();) {
      const size_t end = split_end(text, at);
      tables_.bpe.encode(text.substr(at, end - at), scratch_, ids_);
      at = end;
    }
    stretch_.clear();
  }

  const TokenizerTables& tables_;
  std::string stretch_;
  Bpe::Scratch scratch_;
  std::vector<int32_t> ids_;
};

void check_size(std::span<const Tokenizer::Piece> pieces) {
  size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.text.size();
  if (bytes <= kMaxTextBytes) return;
  throw Error(ErrorKind::kCapacity,
              fmt::format("the text has {} bytes; at most {} are encoded at once", bytes, kMaxTextBytes));
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  return Tokenizer(std::make_unique<Impl>(Impl{build_tokenizer(read_tokenizer_file(tokenizer_json))}));
}

std::vector<int32_t> Tokenizer::encode(std::span<const Piece> pieces) const {
  check_size(pieces);
  Encoder encoder(*impl_);
  for (const Piece& piece : pieces) encoder.add(piece.text, piece.added);
  return encoder.finish();
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, Added added) const {
  const Piece piece{std::string(text), added};
  return encode(std::span(&piece, 1));
}

std::string_view Tokenizer::bytes(int32_t id, bool skip_special) const {
  if (skip_special && impl_->tokens.is_special(id)) return {};
  return impl_->tokens.of(id);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  for (const int32_t id : ids) text += bytes(id, skip_special);
  return is_utf8(text) ? text : repair_utf8(text);
}

std::optional<int32_t> Tokenizer::find_added(std::string_view text) const {
  for (const AddedToken& token : impl_->added) {
    if (token.text == text) return token.id;
  }
  return std::nullopt;
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const {
  return impl_->added;
}

int32_t Tokenizer::size() const {
  return impl_->tokens.size();
}

}  // namespace vireo
