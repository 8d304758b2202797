// Encoding on the tiny vocabulary: which added tokens are recognised where, invalid text, and the way back.
// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "files/test_files.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace vireo {
namespace {

using Added = Tokenizer::Added;
using Ids = std::vector<int32_t>;
using Pieces = std::vector<Tokenizer::Piece>;

class TokenizerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokenizer_ = new Tokenizer(Tokenizer::load(VIREO_SOURCE_DIR "/models/tiny/tokenizer.json"));
  }
  static void TearDownTestSuite() {
    delete tokenizer_;
    tokenizer_ = nullptr;
  }

  static Ids encode(std::string_view text, Added added = Added::kNone) { return tokenizer_->encode(text, added); }
  static bool has_added(const Ids& ids) {
    return std::any_of(ids.begin(), ids.end(), [](int32_t id) { return id >= 1024; });
  }

  static Tokenizer* tokenizer_;
};

Tokenizer* TokenizerTest::tokenizer_ = nullptr;

TEST_F(TokenizerTest, KnowsItsAddedTokens) {
  EXPECT_EQ(tokenizer_->size(), 1050);
  ASSERT_EQ(tokenizer_->added_tokens().size(), 26u);
  EXPECT_EQ(tokenizer_->added_tokens()[1].text, "<|im_start|>");
  EXPECT_TRUE(tokenizer_->added_tokens()[1].special);
  EXPECT_FALSE(tokenizer_->added_tokens()[25].special);
  EXPECT_EQ(tokenizer_->find_added("<|image_pad|>"), 1036);
  EXPECT_EQ(tokenizer_->find_added("</think>"), 1049);
  EXPECT_EQ(tokenizer_->find_added("user"), std::nullopt);
}

TEST_F(TokenizerTest, AddedTokensOnlyWhereTheyAreAllowed) {
  EXPECT_EQ(encode("<|im_end|><think>", Added::kAll), Ids({1026, 1048}));
  const Ids partly = encode("<|im_end|><think>", Added::kNonSpecial);
  EXPECT_EQ(partly.back(), 1048);
  EXPECT_FALSE(has_added(Ids(partly.begin(), partly.end() - 1)));
  EXPECT_FALSE(has_added(encode("<|im_end|><think>", Added::kNone)));
}

TEST_F(TokenizerTest, WhatAUserTypesNeverBecomesASpecialToken) {
  for (const AddedToken& token : tokenizer_->added_tokens()) {
    const Ids ids = encode("a" + token.text + "b");
    EXPECT_FALSE(has_added(ids)) << token.text;
    EXPECT_EQ(tokenizer_->decode(ids, true), "a" + token.text + "b");
  }
}

TEST_F(TokenizerTest, PiecesAreOneText) {
  const Pieces pieces = {
      {"<|im_start|>us", Added::kAll}, {"er\n", Added::kNone}, {"\nhe", Added::kNonSpecial}, {"llo"}};
  EXPECT_EQ(tokenizer_->encode(pieces), encode("<|im_start|>user\n\nhello", Added::kAll));
  // A base letter and its accent in two pieces compose; bytes of one character in two pieces are that
  // character.
  EXPECT_EQ(tokenizer_->encode(Pieces{{"e"}, {"\u0301"}}), encode("é"));
  EXPECT_EQ(tokenizer_->encode(Pieces{{"\xE4\xBD"}, {"\xA0"}}), encode("你"));
  EXPECT_EQ(tokenizer_->encode(Pieces{}), Ids());
}

TEST_F(TokenizerTest, AnAddedTokenLiesInsideOnePiece) {
  EXPECT_FALSE(has_added(tokenizer_->encode(Pieces{{"<|im_", Added::kAll}, {"end|>", Added::kAll}})));
  EXPECT_FALSE(has_added(tokenizer_->encode(Pieces{{"<|im_", Added::kAll}, {"end|>", Added::kNone}})));
  EXPECT_EQ(tokenizer_->encode(Pieces{{"", Added::kAll}, {"<think>", Added::kAll}}), Ids({1048}));
}

TEST_F(TokenizerTest, NothingMergesAcrossAnAddedToken) {
  Ids expected = encode("th");
  expected.push_back(1048);
  for (const int32_t id : encode("e")) expected.push_back(id);
  EXPECT_EQ(encode("th<think>e", Added::kAll), expected);
  // The accent stands alone after the token, so it does not compose with the letter before it.
  EXPECT_EQ(encode("e<think>\u0301", Added::kAll).size(), encode("e").size() + 1 + encode("\u0301").size());
}

TEST_F(TokenizerTest, InvalidUtf8BecomesReplacementCharacters) {
  EXPECT_EQ(encode("a\xFFz"), encode("a\uFFFDz"));
  EXPECT_EQ(encode("\xF0\x9F\x98"), encode("\uFFFD"));
  EXPECT_EQ(encode("\xED\xA0\x80"), encode("\uFFFD\uFFFD\uFFFD"));
}

TEST_F(TokenizerTest, RandomTextComesBackNormalised) {
  const std::vector<std::string> parts = {" ",      "\n",           "\r",     "\t",     "'",     "s",      "T",
                                          "re",     "ll",           "0",      "é",      "ſ",     "\u0301", "\u0323",
                                          "\u212B", "\u1100\u1161", "\u11A8", "\u0958", "你",    "\u3000", "½",
                                          "😀",     "\u200D",       "<",      "|",      "<|im_", "end|>",  "<think>",
                                          "</",     "\x7F",         "\x01",   "\u0085", ".-(",   "[",      "\u0915",
                                          "\u093C"};
  std::mt19937 random(3);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (unsigned n = random() % 30; n > 0; --n) text += parts[random() % parts.size()];
    ASSERT_EQ(tokenizer_->decode(encode(text), true), to_nfc(text)) << text;
  }
}

TEST_F(TokenizerTest, RandomBytesComeBackRepaired) {
  std::mt19937 random(5);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (unsigned n = random() % 20; n > 0; --n)
      text += static_cast<char>(random() % 4 ? random() | 0x80 : random() % 128);
    ASSERT_EQ(tokenizer_->decode(encode(text), true), to_nfc(repair_utf8(text)));
  }
}

TEST_F(TokenizerTest, BytesOfTokens) {
  EXPECT_EQ(tokenizer_->bytes(256, false), " t");
  EXPECT_EQ(tokenizer_->bytes(1026, false), "<|im_end|>");
  EXPECT_EQ(tokenizer_->bytes(1026, true), "");
  EXPECT_EQ(tokenizer_->bytes(1048, true), "<think>");
  EXPECT_EQ(tokenizer_->bytes(1050, false), "");
  EXPECT_EQ(tokenizer_->bytes(-1, false), "");
  EXPECT_EQ(tokenizer_->decode(Ids({257, 1026, 5000, 257}), true), "hehe");
}

TEST_F(TokenizerTest, RefusesTextOfUnreasonableSize) {
  EXPECT_ERROR(encode(std::string((16u << 20) + 1, ' ')), "kCapacity: ", "16777217 bytes", "16777216");
}

TEST_F(TokenizerTest, LongestAddedTokenWins) {
  EXPECT_EQ(encode("<|vision_start|>", Added::kAll), Ids({1033}));
  EXPECT_EQ(encode("<<think>>", Added::kAll).size(), 3u);
}

}  // namespace
}  // namespace vireo
