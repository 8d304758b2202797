// The pinned table at its edges, NFC, and UTF-8 with everything that is ill-formed.
// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.h"

#include <gtest/gtest.h>

#include <chrono>

#include "text/utf8.h"

namespace vireo {
namespace {

TEST(Unicode, ClassesOfKnownCharacters) {
  for (const char32_t c : {U'a', U'Z', U'é', U'ſ', U'你', U'א', U'ʰ', U'\U00020000', U'\U0001E900'}) {
    EXPECT_EQ(char_class(c), CharClass::kLetter) << std::hex << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {U'0', U'9', U'½', U'ⅷ', U'٣', U'９', U'\U0001D7CE'}) {
    EXPECT_EQ(char_class(c), CharClass::kNumber) << std::hex << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {U' ', U'\t', U'\r', U'\u0085', U'\u00A0', U'\u2028', U'\u3000'}) {
    EXPECT_EQ(char_class(c), CharClass::kSpace) << std::hex << static_cast<uint32_t>(c);
  }
  // Marks, a zero-width space, two characters that once were White_Space or look like it, an emoji, the
  // unassigned.
  for (const char32_t c : {U'\u0301', U'\u094D', U'\u200B', U'\u180E', U'\u001C', U'😀', U'\u0378', U'\U0010FFFF'}) {
    EXPECT_EQ(char_class(c), CharClass::kOther) << std::hex << static_cast<uint32_t>(c);
  }
  EXPECT_EQ(char_class(0x110000), CharClass::kOther);
}

// Counts of UnicodeData.txt and PropList.txt 14.0.0: a table of another version fails here.
TEST(Unicode, TableIsThePinnedVersion) {
  size_t counts[4] = {};
  for (char32_t c = 0; c < 0x110000; ++c) ++counts[static_cast<size_t>(char_class(c))];
  EXPECT_STREQ(unicode_version(), "14.0.0");
  EXPECT_EQ(counts[1], 131756u);
  EXPECT_EQ(counts[2], 1791u);
  EXPECT_EQ(counts[3], 25u);
}

TEST(Nfc, ComposesAndReorders) {
  EXPECT_EQ(to_nfc("e\u0301"), "é");
  EXPECT_EQ(to_nfc("\u1100\u1161\u11A8"), "각");
  EXPECT_EQ(to_nfc("\u212B"), "Å");
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093C");          // excluded from composition
  EXPECT_EQ(to_nfc("q\u0307\u0323"), "q\u0323\u0307");  // marks in canonical order
  EXPECT_EQ(to_nfc("ﬁ"), "ﬁ");                          // compatibility is not touched
  EXPECT_EQ(to_nfc(std::string_view("a\0b", 3)), std::string_view("a\0b", 3));
}

TEST(Nfc, QuickCheckStopsAtTheFirstCombiningMark) {
  EXPECT_TRUE(surely_nfc("plain, ünïcödé, ʯ"));
  EXPECT_FALSE(surely_nfc("e\u0300"));
  EXPECT_FALSE(surely_nfc("你"));
}

TEST(Nfc, LongRunsOfMarksAreNotQuadratic) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += "\u0301\u0323";
  const auto start = std::chrono::steady_clock::now();
  const std::string composed = to_nfc(text);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(composed.substr(0, 5), "ạ\u0323");  // U+1EA1, then the other dots, then the accents
  EXPECT_EQ(composed.substr(composed.size() - 2), "\u0301");
}

TEST(Utf8, RepairReplacesMaximalSubsequences) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(repair_utf8("a\x80z"), "a" + r + "z");
  EXPECT_EQ(repair_utf8("\xF0\x9F\x98z"), r + "z");           // truncated: one
  EXPECT_EQ(repair_utf8("\xED\xA0\x80"), r + r + r);          // a surrogate: one per byte
  EXPECT_EQ(repair_utf8("\xC0\xAF"), r + r);                  // overlong
  EXPECT_EQ(repair_utf8("\xE0\x80\x80"), r + r + r);          // overlong
  EXPECT_EQ(repair_utf8("\xF4\x90\x80\x80"), r + r + r + r);  // past U+10FFFF
  EXPECT_EQ(repair_utf8("\xE4\xBD"), r);                      // cut at the end: one
  EXPECT_EQ(repair_utf8("\xE4\xBD\xF0\x9F\x98\x80"), r + "😀");
  EXPECT_FALSE(is_utf8("\xE4\xBD"));
  EXPECT_TRUE(is_utf8("你\x7F"));
}

TEST(Utf8, EveryCharacterSurvives) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Char read = next_utf8(text, 0);
    ASSERT_TRUE(read.valid && read.code == c && read.length == text.size()) << std::hex << static_cast<uint32_t>(c);
  }
}

TEST(Utf8, TellsIncompleteFromInvalid) {
  EXPECT_TRUE(next_utf8("\xF0\x9F", 0).incomplete);
  EXPECT_FALSE(next_utf8("\xF0z", 0).incomplete);
  EXPECT_FALSE(next_utf8("\xE0\x80", 0).incomplete);  // no character begins so
  EXPECT_FALSE(next_utf8("\xFF", 0).incomplete);
}

}  // namespace
}  // namespace vireo
