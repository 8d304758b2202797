// Any bytes as text, encoded and decoded with the tokenizer of the tiny checkpoint.
// Covers: src/text/split.cc src/text/nfc.cc src/text/utf8.cc src/text/unicode.cc src/text/detokenizer.cc
// SPDX-License-Identifier: Apache-2.0
#include "fuzz_util.h"
#include "text/split.h"
#include "text/tokenizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

using namespace vireo;
using Added = Tokenizer::Added;

namespace {

std::string streamed(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool skip_special) {
  Detokenizer detokenizer(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string shown = detokenizer.push(id);
    fuzz::require(is_utf8(shown), "a stream shows whole characters");
    text += shown;
  }
  return text + detokenizer.flush();
}

// The bytes as token ids, so that characters are cut in every way.
void check_stream(const Tokenizer& tokenizer, std::string_view bytes) {
  std::vector<int32_t> ids;
  for (const char c : bytes) ids.push_back(static_cast<unsigned char>(c) * 5 - 40);
  fuzz::require(streamed(tokenizer, ids, true) == tokenizer.decode(ids, true), "a stream reads as the whole");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Tokenizer tokenizer = Tokenizer::load(VIREO_SOURCE_DIR "/models/tiny/tokenizer.json");
  const std::string_view text = fuzz::as_text(data, size);
  const std::string normal = to_nfc(repair_utf8(text));
  fuzz::require(is_utf8(normal), "NFC of a valid text is valid");
  fuzz::require(to_nfc(normal) == normal, "NFC of NFC changes nothing");
  for (size_t at = 0; at < normal.size();) {
    const size_t end = split_end(normal, at);
    fuzz::require(end > at && end <= normal.size() && is_utf8(normal.substr(at, end - at)),
                  "pieces are whole characters");
    at = end;
  }
  const std::vector<int32_t> ids = tokenizer.encode(text, Added::kNone);
  fuzz::require(tokenizer.decode(ids, false) == normal, "decoding gives the normalised text back");
  fuzz::require(streamed(tokenizer, ids, false) == normal, "and so does a stream");
  tokenizer.encode(text, Added::kAll);
  check_stream(tokenizer, text);
  return 0;
}
