// SPDX-License-Identifier: Apache-2.0
#include "engine/base64.h"

#include <gtest/gtest.h>

#include <string>

namespace vireo {
namespace {

std::optional<std::string> decoded(std::string_view text) {
  const auto bytes = decode_base64(text);
  if (!bytes) return std::nullopt;
  return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

// RFC 4648, section 10.
TEST(Base64, StandardVectors) {
  EXPECT_EQ(decoded(""), "");
  EXPECT_EQ(decoded("Zg=="), "f");
  EXPECT_EQ(decoded("Zm8="), "fo");
  EXPECT_EQ(decoded("Zm9v"), "foo");
  EXPECT_EQ(decoded("Zm9vYg=="), "foob");
  EXPECT_EQ(decoded("Zm9vYmE="), "fooba");
  EXPECT_EQ(decoded("Zm9vYmFy"), "foobar");
}

TEST(Base64, BothAlphabetsGiveTheSameBytes) {
  EXPECT_EQ(decoded("+/+/"), "\xfb\xff\xbf");
  EXPECT_EQ(decoded("-_-_"), "\xfb\xff\xbf");
}

TEST(Base64, PaddingIsOptionalAndWhiteSpaceIsSkipped) {
  EXPECT_EQ(decoded("Zg"), "f");
  EXPECT_EQ(decoded("Zm8"), "fo");
  EXPECT_EQ(decoded(" Zm9v\r\n\tYmFy\n"), "foobar");
  EXPECT_EQ(decoded("Zg==\n"), "f");
}

TEST(Base64, WhatIsNotBase64IsRefused) {
  EXPECT_EQ(decoded("Zm9*"), std::nullopt);
  EXPECT_EQ(decoded("Zm9v\x80"), std::nullopt);
  EXPECT_EQ(decoded(std::string_view("Zm9\0", 4)), std::nullopt);
  EXPECT_EQ(decoded("Z"), std::nullopt);
  EXPECT_EQ(decoded("Zm9vY"), std::nullopt);
  EXPECT_EQ(decoded("Zg==Zg=="), std::nullopt);
  EXPECT_EQ(decoded("Zg==="), std::nullopt);
}

TEST(Base64, EveryByteSurvives) {
  constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = {kAlphabet[byte >> 2], kAlphabet[(byte & 3) << 4]};
    const auto bytes = decode_base64(text);
    ASSERT_TRUE(bytes) << byte;
    ASSERT_EQ(bytes->size(), 1u);
    EXPECT_EQ(static_cast<int>((*bytes)[0]), byte);
  }
}

}  // namespace
}  // namespace vireo
