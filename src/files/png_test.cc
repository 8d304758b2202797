// PNG in every colour type and depth under both pixel rules, interlacing, and damage.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "files/image_test_util.h"
#include "files/test_files.h"

namespace vireo {
namespace {

constexpr auto kDefault = PixelRules::kDefault, kReference = PixelRules::kReference;

Pixels decoded(const PngKind& kind, const Pixels& raw, PixelRules rules) {
  return decode(make_png(kind, raw), rules).pixels;
}

TEST(Png, AlphaOverWhiteOrDropped) {
  const PngKind kind{3, 1, 8, PNG_COLOR_TYPE_RGBA};
  const Pixels raw = {10, 20, 30, 0, 10, 20, 30, 255, 10, 20, 30, 128};
  EXPECT_EQ(decoded(kind, raw, kDefault), (Pixels{255, 255, 255, 10, 20, 30, 132, 137, 142}));
  EXPECT_EQ(decoded(kind, raw, kReference), (Pixels{10, 20, 30, 10, 20, 30, 10, 20, 30}));
}

TEST(Png, GrayAlpha) {
  const PngKind kind{2, 1, 8, PNG_COLOR_TYPE_GRAY_ALPHA};
  EXPECT_EQ(decoded(kind, {40, 0, 40, 255}, kDefault), (Pixels{255, 255, 255, 40, 40, 40}));
  EXPECT_EQ(decoded(kind, {40, 0, 40, 255}, kReference), (Pixels{40, 40, 40, 40, 40, 40}));
}

TEST(Png, Gray16ByHighByteOrSaturated) {
  const PngKind kind{4, 1, 16, PNG_COLOR_TYPE_GRAY};
  const Pixels raw = {0x12, 0xff, 0x00, 0xff, 0x01, 0x00, 0x00, 0x07};
  EXPECT_EQ(decoded(kind, raw, kDefault), (Pixels{18, 18, 18, 0, 0, 0, 1, 1, 1, 0, 0, 0}));
  EXPECT_EQ(decoded(kind, raw, kReference), (Pixels{255, 255, 255, 255, 255, 255, 255, 255, 255, 7, 7, 7}));
}

TEST(Png, Gray16WithTransparentSample) {
  const PngKind kind{.width = 2, .height = 1, .bit_depth = 16, .color_type = PNG_COLOR_TYPE_GRAY, .key = 0x1234};
  const Pixels raw = {0x12, 0x34, 0x12, 0x35};
  EXPECT_EQ(decoded(kind, raw, kDefault), (Pixels{255, 255, 255, 18, 18, 18}));
  EXPECT_EQ(decoded(kind, raw, kReference), (Pixels{255, 255, 255, 255, 255, 255}));
}

TEST(Png, OtherSixteenBitKindsByHighByte) {
  EXPECT_EQ(decoded({1, 1, 16, PNG_COLOR_TYPE_RGB}, {1, 99, 2, 200, 3, 255}, kReference), (Pixels{1, 2, 3}));
  EXPECT_EQ(decoded({1, 1, 16, PNG_COLOR_TYPE_RGBA}, {1, 9, 2, 9, 3, 9, 0, 9}, kReference), (Pixels{1, 2, 3}));
  EXPECT_EQ(decoded({1, 1, 16, PNG_COLOR_TYPE_RGBA}, {1, 9, 2, 9, 3, 9, 0, 9}, kDefault), (Pixels{255, 255, 255}));
  EXPECT_EQ(decoded({1, 1, 16, PNG_COLOR_TYPE_GRAY_ALPHA}, {7, 9, 0, 9}, kReference), (Pixels{7, 7, 7}));
}

TEST(Png, PaletteWithAndWithoutAlpha) {
  PngKind kind{.width = 3,
               .height = 1,
               .bit_depth = 8,
               .color_type = PNG_COLOR_TYPE_PALETTE,
               .palette = {1, 2, 3, 4, 5, 6, 7, 8, 9}};
  const Pixels colors = {7, 8, 9, 1, 2, 3, 4, 5, 6};
  EXPECT_EQ(decoded(kind, {2, 0, 1}, kDefault), colors);
  kind.palette_alpha = {0};
  EXPECT_EQ(decoded(kind, {2, 0, 1}, kDefault), (Pixels{7, 8, 9, 255, 255, 255, 4, 5, 6}));
  EXPECT_EQ(decoded(kind, {2, 0, 1}, kReference), colors);
}

TEST(Png, SmallDepthsSpreadOverTheRange) {
  EXPECT_EQ(decoded({2, 1, 1, PNG_COLOR_TYPE_GRAY}, {0x40}, kDefault), (Pixels{0, 0, 0, 255, 255, 255}));
  EXPECT_EQ(decoded({2, 1, 2, PNG_COLOR_TYPE_GRAY}, {0x60}, kDefault), (Pixels{85, 85, 85, 170, 170, 170}));
  EXPECT_EQ(decoded({2, 1, 4, PNG_COLOR_TYPE_GRAY}, {0x3f}, kDefault), (Pixels{51, 51, 51, 255, 255, 255}));
}

TEST(Png, InterlacedIsTheSamePicture) {
  for (int color_type : {PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGBA, PNG_COLOR_TYPE_GRAY}) {
    PngKind kind{13, 9, 8, color_type};
    Pixels raw;
    for (int i = 0; i < 13 * 9 * 4; ++i) raw.push_back(static_cast<uint8_t>(i * 37));
    const Pixels plain = decoded(kind, raw, kDefault);
    kind.interlace = PNG_INTERLACE_ADAM7;
    EXPECT_EQ(decoded(kind, raw, kDefault), plain) << color_type;
  }
}

TEST(Png, TruncatedFilesAreRefused) {
  for (const char* file : {"rgb_33x33.png", "palette_180x180.png", "rgba_220x140.png"}) {
    const std::string whole = stored_picture(file);
    for (size_t n : {size_t{8}, size_t{30}, whole.size() / 2, whole.size() - 20, whole.size() - 1})
      EXPECT_EQ(error_of([&] { decode(whole.substr(0, n)); }).rfind("kInput: x.img cannot be decoded as PNG", 0), 0u)
          << file << " " << n;
  }
}

TEST(Png, DamagedDataAreRefused) {
  std::string png = stored_picture("rgb_33x33.png");
  png[png.size() / 2] ^= 0x10;
  EXPECT_EQ(error_of([&] { decode(png); }).rfind("kInput: x.img cannot be decoded as PNG", 0), 0u);
}

TEST(Png, EmptySizesAreRefused) {
  std::string png = stored_picture("rgb_33x33.png");
  png.replace(16, 4, 4, '\0');
  EXPECT_NE(error_of([&] { decode(png); }).find("no pixels (0 x 33)"), std::string::npos);
}

}  // namespace
}  // namespace vireo
