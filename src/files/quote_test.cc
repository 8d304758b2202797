// SPDX-License-Identifier: Apache-2.0
#include "files/quote.h"

#include <gtest/gtest.h>

namespace vireo {
namespace {

using std::string;

TEST(Quote, ShowsPrintableAsciiOnly) {
  EXPECT_EQ(printable("a b~"), "a b~");
  EXPECT_EQ(printable(string("\0\x1b[1m\n\x7f", 7)), "\\x00\\x1b[1m\\x0a\\x7f");
  EXPECT_EQ(printable("\xc3\xa9"), "\\xc3\\xa9");
  EXPECT_EQ(printable("abcd", 4), "abcd");
  EXPECT_EQ(printable("abcde", 4), "abcd...");
  EXPECT_EQ(in_quotes("a\tb"), "'a\\x09b'");
}

TEST(Quote, ShowsAPathInItsLanguage) {
  EXPECT_EQ(path_text("/home/jos\xc3\xa9/\xe6\xa8\xa1 1.png"), "/home/jos\xc3\xa9/\xe6\xa8\xa1 1.png");
  EXPECT_EQ(path_text("\xc2\xa0\xc2"), "\xc2\xa0\xc2");
  EXPECT_EQ(path_text(""), "");
}

TEST(Quote, EscapesTheControlCharactersOfAPath) {
  EXPECT_EQ(path_text(string("a\0\n/\x1b[2J\x7f", 9)), "a\\x00\\x0a/\\x1b[2J\\x7f");
  EXPECT_EQ(path_text("\xc2\x80\xc2\x9f"), "\\xc2\\x80\\xc2\\x9f");
}

TEST(Quote, KeepsTheEndOfALongPath) {
  EXPECT_EQ(path_text(string(1000, 'x')), string(1000, 'x'));
  EXPECT_EQ(path_text(string(2000, 'x') + string(990, 'y') + "/model.png"), "..." + string(990, 'y') + "/model.png");
}

}  // namespace
}  // namespace vireo
