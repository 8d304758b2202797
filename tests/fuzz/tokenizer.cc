// tokenizer.json; a text is encoded and decoded with every one that is accepted.
// Covers: src/text/tokenizer_file.cc src/text/tokenizer_check.cc src/text/tokenizer_build.cc src/text/tokenizer.cc
// Covers: src/text/added_matcher.cc src/text/bpe.cc
// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include "fuzz_util.h"

using namespace vireo;
using Added = Tokenizer::Added;

namespace {

constexpr std::string_view kText = "Hello, the <|im_start|>world<think> caf\xc3\xa9 e\xcc\x81 \xff 12  \n\n x's";

void check_ids(const Tokenizer& tokenizer) {
  for (const Added added : {Added::kNone, Added::kNonSpecial, Added::kAll}) {
    const std::vector<int32_t> ids = tokenizer.encode(kText, added);
    for (const int32_t id : ids) fuzz::require(id >= 0 && id < tokenizer.size(), "an id is below the size");
    tokenizer.decode(ids, true);
  }
}

void check_added(const Tokenizer& tokenizer) {
  for (const AddedToken& token : tokenizer.added_tokens()) {
    fuzz::require(tokenizer.find_added(token.text) == token.id, "an added token is found by its text");
    fuzz::require(tokenizer.bytes(token.id, false) == token.text, "an added token reads as its text");
    if (token.special) fuzz::require(tokenizer.bytes(token.id, true).empty(), "a special token can be hidden");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile memory(fuzz::as_text(data, size));
  fuzz::accepts([&] {
    const Tokenizer tokenizer = Tokenizer::load(memory.path());
    check_ids(tokenizer);
    check_added(tokenizer);
    for (const int32_t id : {-1, 0, tokenizer.size(), 1 << 30}) tokenizer.bytes(id, false);
  });
  return 0;
}
