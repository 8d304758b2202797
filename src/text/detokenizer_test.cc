// Streams are whole characters, and what they add up to is what decode gives.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace vireo {
namespace {

class DetokenizerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokenizer_ = new Tokenizer(Tokenizer::load(VIREO_SOURCE_DIR "/models/tiny/tokenizer.json"));
  }
  static void TearDownTestSuite() {
    delete tokenizer_;
    tokenizer_ = nullptr;
  }

  // The token of one byte.
  static int32_t byte(unsigned char value) {
    for (int32_t id = 0; id < 256; ++id) {
      const std::string_view bytes = tokenizer_->bytes(id, false);
      if (bytes.size() == 1 && static_cast<unsigned char>(bytes[0]) == value) return id;
    }
    ADD_FAILURE() << "no token for byte " << int{value};
    return 0;
  }

  static Tokenizer* tokenizer_;
};

Tokenizer* DetokenizerTest::tokenizer_ = nullptr;

TEST_F(DetokenizerTest, HoldsBackUnfinishedCharacters) {
  Detokenizer stream(*tokenizer_, true);
  EXPECT_EQ(stream.push(byte('a')), "a");
  EXPECT_EQ(stream.push(byte(0xF0)), "");
  EXPECT_EQ(stream.push(byte(0x9F)), "");
  EXPECT_EQ(stream.push(byte(0x98)), "");
  EXPECT_EQ(stream.push(byte(0x80)), "😀");
  EXPECT_EQ(stream.flush(), "");
}

TEST_F(DetokenizerTest, ReplacesAtOnceWhatCannotBecomeValid) {
  Detokenizer stream(*tokenizer_, true);
  EXPECT_EQ(stream.push(byte(0x80)), "\uFFFD");
  EXPECT_EQ(stream.push(byte(0xE0)), "");
  EXPECT_EQ(stream.push(byte(0x80)), "\uFFFD\uFFFD");  // E0 80 begins no character
  EXPECT_EQ(stream.push(byte(0xE4)), "");
  EXPECT_EQ(stream.push(byte('x')), "\uFFFDx");
}

TEST_F(DetokenizerTest, FlushGivesTheHeldTailOnce) {
  Detokenizer stream(*tokenizer_, true);
  EXPECT_EQ(stream.push(byte(0xF0)), "");
  EXPECT_EQ(stream.push(byte(0x9F)), "");
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_EQ(stream.flush(), "");
  EXPECT_EQ(stream.push(byte('b')), "b");
}

TEST_F(DetokenizerTest, SpecialTokensAreDroppedOrShown) {
  const int32_t end = *tokenizer_->find_added("<|im_end|>"), think = *tokenizer_->find_added("<think>");
  Detokenizer quiet(*tokenizer_, true), loud(*tokenizer_, false);
  EXPECT_EQ(quiet.push(end), "");
  EXPECT_EQ(quiet.push(think), "<think>");
  EXPECT_EQ(loud.push(end), "<|im_end|>");
  EXPECT_EQ(loud.push(think), "<think>");
}

TEST_F(DetokenizerTest, IdsPastTheVocabularyGiveNothing) {
  Detokenizer stream(*tokenizer_, false);
  EXPECT_EQ(stream.push(tokenizer_->size()), "");
  EXPECT_EQ(stream.push(-1), "");
  EXPECT_EQ(stream.push(2'000'000'000), "");
  EXPECT_EQ(stream.flush(), "");
}

TEST_F(DetokenizerTest, RandomTokensStreamAsTheyDecode) {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids(random() % 20);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 1100) - 5;
    for (const bool skip : {false, true}) {
      Detokenizer stream(*tokenizer_, skip);
      std::string text;
      for (const int32_t id : ids) {
        const std::string part = stream.push(id);
        ASSERT_TRUE(is_utf8(part));
        text += part;
      }
      text += stream.flush();
      ASSERT_EQ(text, tokenizer_->decode(ids, skip));
    }
  }
}

}  // namespace
}  // namespace vireo
