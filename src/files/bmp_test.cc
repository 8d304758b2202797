// BMP made by hand: every depth, both row orders, masks, and headers that lie.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "files/image_test_util.h"
#include "files/test_files.h"

namespace vireo {
namespace {

using std::string_literals::operator""s;

struct BmpKind {
  int32_t width = 2;
  int32_t height = 2;
  int bits = 24;
  uint32_t compression = 0;
  std::string after_header = "";  // masks or palette
  uint32_t colors = 0;
};

std::string make_bmp(const BmpKind& kind, const std::string& rows) {
  const std::string info = le32(40) + le32(kind.width) + le32(kind.height) + le16(1) + le16(kind.bits) +
                           le32(kind.compression) + le32(rows.size()) + le32(0) + le32(0) + le32(kind.colors) + le32(0);
  const uint32_t offset = 14 + info.size() + kind.after_header.size();
  return "BM" + le32(offset + rows.size()) + le32(0) + le32(offset) + info + kind.after_header + rows;
}

// Rows of two pixels, bottom row first: blue and green under red and white.
const std::string kRows24 = "\xff\0\0\0\xff\0\0\0\0\0\xff\xff\xff\xff\0\0"s;
const Pixels kUpright = {255, 0, 0, 255, 255, 255, 0, 0, 255, 0, 255, 0};

TEST(Bmp, BottomUpAndTopDown) {
  EXPECT_EQ(decode(make_bmp({}, kRows24)).pixels, kUpright);
  const Pixels flipped = {0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255, 255};
  EXPECT_EQ(decode(make_bmp({.height = -2}, kRows24)).pixels, flipped);
}

const std::string kPalette = "\0\0\xff\0\xff\xff\xff\0\xff\0\0\0\0\xff\0\0"s;  // red, white, blue, green

TEST(Bmp, Palettes) {
  EXPECT_EQ(decode(make_bmp({.bits = 8, .after_header = kPalette, .colors = 4}, "\2\3\0\0\0\1\0\0"s)).pixels, kUpright);
  EXPECT_EQ(decode(make_bmp({.bits = 4, .after_header = kPalette, .colors = 4}, "\x23\0\0\0\x01\0\0\0"s)).pixels,
            kUpright);
  EXPECT_EQ(decode(make_bmp({.height = 1, .bits = 1, .after_header = kPalette, .colors = 2}, "\x40\0\0\0"s)).pixels,
            (Pixels{255, 0, 0, 255, 255, 255}));
}

TEST(Bmp, IndicesOutsideThePaletteAreBlack) {
  EXPECT_EQ(decode(make_bmp({.height = 1, .bits = 8, .after_header = kPalette, .colors = 4}, "\xff\1\0\0"s)).pixels,
            (Pixels{0, 0, 0, 255, 255, 255}));
}

TEST(Bmp, SixteenBits) {
  const std::string row = le16(0x7fff) + le16(0x4000);
  EXPECT_EQ(decode(make_bmp({.height = 1, .bits = 16}, row)).pixels, (Pixels{255, 255, 255, 131, 0, 0}));
  const std::string masks565 = le32(0xf800) + le32(0x07e0) + le32(0x001f);
  EXPECT_EQ(decode(make_bmp({.height = 1, .bits = 16, .compression = 3, .after_header = masks565},
                            le16(0xf800) + le16(0x0400)))
                .pixels,
            (Pixels{255, 0, 0, 0, 129, 0}));
}

TEST(Bmp, ThirtyTwoBitsIgnoreTheFourthByteUnlessItIsAlpha) {
  const std::string row = "\3\2\1\0\6\5\4\xff"s;
  EXPECT_EQ(decode(make_bmp({.height = 1, .bits = 32}, row)).pixels, (Pixels{1, 2, 3, 4, 5, 6}));
  const std::string masks = le32(0xff0000) + le32(0xff00) + le32(0xff) + le32(0xff000000);
  const std::string alpha = make_bmp({.height = 1, .bits = 32, .compression = 6, .after_header = masks}, row);
  EXPECT_EQ(decode(alpha, PixelRules::kDefault).pixels, (Pixels{255, 255, 255, 4, 5, 6}));
  EXPECT_EQ(decode(alpha, PixelRules::kReference).pixels, (Pixels{1, 2, 3, 4, 5, 6}));
}

TEST(Bmp, CoreHeader) {
  const std::string core = "BM" + le32(0) + le32(0) + le32(26) + le32(12) + le16(2) + le16(2) + le16(1) + le16(24);
  EXPECT_EQ(decode(core + kRows24).pixels, kUpright);
}

std::string refusal(const std::string& bytes) {
  return error_of([&] { decode(bytes); });
}

TEST(Bmp, LiesAreRefused) {
  const std::pair<BmpKind, const char*> kLies[] = {
      {{.width = 0}, "no pixels"},
      {{.width = -2}, "no pixels"},
      {{.width = 0x7fffffff, .height = INT32_MIN}, "over the limit"},
      {{.height = 3}, "end early"},
      {{.bits = 7}, "7 bits per pixel"},
      {{.bits = 8, .colors = 0}, "end early"},
      {{.bits = 8, .compression = 1}, "run-length"},
      {{.compression = 3}, "bit masks"},
      {{.compression = 77}, "compression 77"},
  };
  for (const auto& [kind, reason] : kLies)
    EXPECT_NE(refusal(make_bmp(kind, kRows24)).find(reason), std::string::npos) << reason;
  std::string far = make_bmp({}, kRows24);
  far.replace(10, 4, le32(0xfffffff0));
  EXPECT_NE(refusal(far).find("end early"), std::string::npos);
}

}  // namespace
}  // namespace vireo
