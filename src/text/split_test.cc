// The splits that the pattern makes, alternative by alternative.
// SPDX-License-Identifier: Apache-2.0
#include "text/split.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace vireo {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(const std::string& text) {
  Pieces pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t end = split_end(text, at);
    pieces.push_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

TEST(Split, SpecifiedExamples) {
  EXPECT_EQ(split("I'm HE'LL don't"), Pieces({"I", "'m", " HE", "'LL", " don", "'t"}));
  EXPECT_EQ(split("x=12345;  y"), Pieces({"x", "=", "1", "2", "3", "4", "5", ";", " ", " y"}));
  EXPECT_EQ(split("a\n\n  b"), Pieces({"a", "\n\n", " ", " b"}));
  EXPECT_EQ(split("a  \n\n  b "), Pieces({"a", "  \n\n", " ", " b", " "}));
  EXPECT_EQ(split("tab\tword\t\tx"), Pieces({"tab", "\tword", "\t", "\tx"}));
  EXPECT_EQ(split("foo(bar)\n\nbaz"), Pieces({"foo", "(bar", ")\n\n", "baz"}));
  EXPECT_EQ(split("你好，世界123"), Pieces({"你好", "，世界", "1", "2", "3"}));
  EXPECT_EQ(split("<0.2 seconds>"), Pieces({"<", "0", ".", "2", " seconds", ">"}));
  EXPECT_EQ(split("नमस्ते"), Pieces({"नमस", "्त", "े"}));
}

TEST(Split, Contractions) {
  EXPECT_EQ(split("'S'T'RE'VE'M'LL'D"), Pieces({"'S", "'T", "'RE", "'VE", "'M", "'LL", "'D"}));
  EXPECT_EQ(split("'sx"), Pieces({"'s", "x"}));
  EXPECT_EQ(split("'ſx"), Pieces({"'ſ", "x"}));  // U+017F folds to s
  EXPECT_EQ(split("'rx"), Pieces({"'rx"}));      // no contraction: a mark and letters
  EXPECT_EQ(split("'l"), Pieces({"'l"}));
  EXPECT_EQ(split("''s"), Pieces({"''", "s"}));  // the run of marks takes both
  EXPECT_EQ(split("'"), Pieces({"'"}));
  EXPECT_EQ(split("’s"), Pieces({"’s"}));
}

TEST(Split, WordsTakeOneLeadingCharacter) {
  EXPECT_EQ(split("\u00A0word"), Pieces({"\u00A0word"}));
  EXPECT_EQ(split("\nword"), Pieces({"\n", "word"}));
  EXPECT_EQ(split("1word"), Pieces({"1", "word"}));
  EXPECT_EQ(split("--word"), Pieces({"--", "word"}));
  EXPECT_EQ(split("e\u0301a"), Pieces({"e", "\u0301a"}));
}

TEST(Split, MarksTakeASpaceAndNewlines) {
  EXPECT_EQ(split(" !?\r\n\n x"), Pieces({" !?\r\n\n", " x"}));
  EXPECT_EQ(split("  !"), Pieces({" ", " !"}));
  EXPECT_EQ(split("\t!"), Pieces({"\t", "!"}));
  EXPECT_EQ(split("! \n"), Pieces({"!", " \n"}));
}

TEST(Split, Whitespace) {
  EXPECT_EQ(split("   "), Pieces({"   "}));
  EXPECT_EQ(split("   1"), Pieces({"  ", " ", "1"}));
  EXPECT_EQ(split(" \n \r  \u3000x"), Pieces({" \n \r", "  ", "\u3000x"}));
  EXPECT_EQ(split("\u2028\u2029."), Pieces({"\u2028", "\u2029", "."}));
  EXPECT_EQ(split("\n"), Pieces({"\n"}));
  EXPECT_EQ(split(""), Pieces());
}

TEST(Split, IsLinear) {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += "\n  ";
  const std::string spaces(1'000'000, ' ');
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(split(text + spaces + "x").size(), 3u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace vireo
