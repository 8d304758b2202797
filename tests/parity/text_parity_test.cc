// The tokenizer against the stock encoder: ids and decodings of 445 awkward texts under two vocabularies.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "files/json.h"
#include "text/tokenizer.h"

namespace vireo {
namespace {

struct Vocabulary {
  const char* name;  // of its goldens
  const char* path;
};

const Vocabulary kTiny{"tiny", VIREO_SOURCE_DIR "/models/tiny/tokenizer.json"};
const Vocabulary kOfficial{"qwen3", VIREO_TEST_DATA "/qwen3-tokenizer/tokenizer.json"};

class TextParity : public testing::TestWithParam<Vocabulary> {
 protected:
  static constexpr size_t kTexts = 445;

  void SetUp() override {
    goldens_ = read_json(VIREO_TEST_DATA "/goldens/tokenizer.json");
    ASSERT_EQ(goldens_["texts"].size(), kTexts);
  }

  std::string text(size_t i) const { return goldens_["texts"][i].get<std::string>(); }
  std::vector<int32_t> ids(size_t i) const { return goldens_[GetParam().name][i].get<std::vector<int32_t>>(); }
  std::string decoded(size_t i) const {
    return goldens_[std::string(GetParam().name) + "_decoded"][i].get<std::string>();
  }

  Json goldens_;
  Tokenizer tokenizer_ = Tokenizer::load(GetParam().path);
};

TEST_P(TextParity, EncodesAsTheReference) {
  for (size_t i = 0; i < kTexts; ++i) {
    EXPECT_EQ(tokenizer_.encode(text(i), Tokenizer::Added::kAll), ids(i)) << "text " << i << ": " << text(i);
  }
}

TEST_P(TextParity, DecodesAsTheReference) {
  for (size_t i = 0; i < kTexts; ++i) EXPECT_EQ(tokenizer_.decode(ids(i), false), decoded(i)) << "text " << i;
}

TEST_P(TextParity, StreamsWhatItDecodes) {
  for (size_t i = 0; i < kTexts; ++i) {
    Detokenizer detokenizer(tokenizer_, false);
    std::string streamed;
    for (const int32_t id : ids(i)) streamed += detokenizer.push(id);
    streamed += detokenizer.flush();
    EXPECT_EQ(streamed, decoded(i)) << "text " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, TextParity, testing::Values(kTiny, kOfficial),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(OfficialTokenizer, HasTheKnownIds) {
  const Tokenizer tokenizer = Tokenizer::load(kOfficial.path);
  const auto encode = [&](const char* text) { return tokenizer.encode(text, Tokenizer::Added::kNone); };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(encode("user"), Ids({872}));
  EXPECT_EQ(encode("assistant"), Ids({77091}));
  EXPECT_EQ(encode("system"), Ids({8948}));
  EXPECT_EQ(encode("\n"), Ids({198}));
  EXPECT_EQ(encode("Hello, world!"), Ids({9707, 11, 1879, 0}));
  EXPECT_EQ(encode("Describe this image in one sentence."), Ids({74785, 419, 2168, 304, 825, 11652, 13}));
  EXPECT_EQ(tokenizer.size(), 151669);
  EXPECT_EQ(tokenizer.find_added("<|im_end|>"), 151645);
  EXPECT_EQ(tokenizer.find_added("</think>"), 151668);
}

// Wide enough for a loaded machine; a document tree of this file alone takes longer.
TEST(OfficialTokenizer, LoadsFast) {
  const auto start = std::chrono::steady_clock::now();
  const Tokenizer tokenizer = Tokenizer::load(kOfficial.path);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(tokenizer.added_tokens().size(), 26u);
  RecordProperty("load_ms", static_cast<int>(taken.count() * 1000));
  EXPECT_LT(taken.count(), 5.0);
}

}  // namespace
}  // namespace vireo
