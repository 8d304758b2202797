// GIF made by hand: transparency, disposal, interlacing, timing, and the limits of clips.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "files/image_test_util.h"
#include "files/test_files.h"

namespace vireo {
namespace {

using std::string_literals::operator""s;

struct GifFrame {
  int left = 0, top = 0, width = 2, height = 1;
  std::string indices;  // 0 to 3
  int delay = 10;
  int disposal = 0;
  int transparent = -1;
  bool interlaced = false;
};

// Uncompressed LZW: 3-bit codes, with a clear code before the width would grow.
std::string lzw(const std::string& indices) {
  constexpr int kClear = 4, kEnd = 5;
  std::vector<int> codes;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (i % 2 == 0) codes.push_back(kClear);
    codes.push_back(indices[i]);
  }
  codes.push_back(kEnd);
  std::string bytes;
  for (size_t bit = 0; bit < 3 * codes.size(); ++bit) {
    if (bit % 8 == 0) bytes += '\0';
    bytes.back() |= static_cast<char>((codes[bit / 3] >> bit % 3 & 1) << bit % 8);
  }
  return bytes;
}

std::string gif_frame(const GifFrame& f) {
  const std::string data = lzw(f.indices);
  const int flags = f.disposal << 2 | (f.transparent >= 0 ? 1 : 0);
  return "!\xf9\x04"s + static_cast<char>(flags) + le16(f.delay) + static_cast<char>(std::max(f.transparent, 0)) +
         "\0,"s + le16(f.left) + le16(f.top) + le16(f.width) + le16(f.height) + (f.interlaced ? "\x40"s : "\0"s) +
         "\2"s + static_cast<char>(data.size()) + data + "\0"s;
}

// The palette is red, green, blue, grey (9).
std::string make_gif(int width, int height, const std::vector<GifFrame>& frames) {
  std::string bytes = "GIF89a" + le16(width) + le16(height) + "\x81\0\0"s + "\xff\0\0\0\xff\0\0\0\xff\x09\x09\x09"s;
  for (const GifFrame& frame : frames) bytes += gif_frame(frame);
  return bytes + ";";
}

// One letter a pixel: r, g, b, 9 for the palette, W for white.
std::string letters(const RgbImage& image) {
  std::string text;
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    const Pixels p(image.pixels.begin() + i, image.pixels.begin() + i + 3);
    text += p == Pixels{255, 0, 0}       ? 'r'
            : p == Pixels{0, 255, 0}     ? 'g'
            : p == Pixels{0, 0, 255}     ? 'b'
            : p == Pixels{9, 9, 9}       ? '9'
            : p == Pixels{255, 255, 255} ? 'W'
                                         : '?';
  }
  return text;
}

Clip clip_of(const std::string& gif, const ImageLimits& limits = {}) {
  return decode_gif_clip(view(gif), "x.gif", limits);
}

TEST(Gif, TransparencyOverWhiteOrThePaletteColour) {
  const std::string gif = make_gif(3, 1, {{.left = 1, .indices = "\1\2"s, .transparent = 1}});
  EXPECT_EQ(letters(decode(gif, PixelRules::kDefault)), "WWb");
  EXPECT_EQ(letters(decode(gif, PixelRules::kReference)), "ggb");
}

TEST(Gif, TheFirstFrameAlone) {
  const std::string gif = make_gif(2, 1, {{.indices = "\0\1"s}, {.indices = "\2\2"s}});
  EXPECT_EQ(letters(decode(gif)), "rg");
  EXPECT_EQ(letters(decode(gif.substr(0, gif.size() - 15))), "rg");
}

// Rows come in the order 0, 4, 2, 1, 3.
TEST(Gif, InterlacedRows) {
  const GifFrame frame{.width = 1, .height = 5, .indices = "\0\1\2\3\0"s, .interlaced = true};
  EXPECT_EQ(letters(decode(make_gif(1, 5, {frame}))), "r9brg");
}

TEST(Gif, AFrameLargerThanTheScreenGrowsIt) {
  const std::string gif = make_gif(1, 1, {{.indices = "\0\1"s}});
  EXPECT_EQ(letters(decode(gif)), "rg");
  EXPECT_EQ(image_size(view(gif), "x").width, 2);
}

TEST(GifClip, Disposal) {
  const Clip clip = clip_of(make_gif(3, 1,
                                     {{.width = 3, .indices = "\0\0\0"s, .disposal = 1},
                                      {.indices = "\1\1"s, .disposal = 2},
                                      {.left = 2, .width = 1, .indices = "\2"s, .disposal = 3},
                                      {.left = 1, .width = 1, .indices = "\3"s}}));
  ASSERT_EQ(clip.frames.size(), 4u);
  EXPECT_EQ(letters(clip.frames[0]), "rrr");
  EXPECT_EQ(letters(clip.frames[1]), "ggr");
  EXPECT_EQ(letters(clip.frames[2]), "WWb");
  EXPECT_EQ(letters(clip.frames[3]), "W9r");
}

TEST(GifClip, TransparentPixelsKeepWhatIsThere) {
  const Clip clip =
      clip_of(make_gif(2, 1, {{.indices = "\0\1"s, .transparent = 1}, {.indices = "\2\1"s, .transparent = 2}}));
  EXPECT_EQ(letters(clip.frames[0]), "rW");
  EXPECT_EQ(letters(clip.frames[1]), "rg");
}

TEST(GifClip, RateIsThatOfTheMeanDelay) {
  const std::string pixels = "\0\0"s;
  EXPECT_DOUBLE_EQ(clip_of(make_gif(2, 1, {{.indices = pixels, .delay = 20}, {.indices = pixels, .delay = 30}})).fps,
                   4);
  EXPECT_DOUBLE_EQ(clip_of(make_gif(2, 1, {{.indices = pixels, .delay = 0}, {.indices = pixels, .delay = 1}})).fps, 10);
  EXPECT_DOUBLE_EQ(clip_of(make_gif(2, 1, {{.indices = pixels, .delay = 2}})).fps, 50);
}

TEST(GifClip, LimitsOnFramesAndPixels) {
  const std::string gif = make_gif(2, 1, std::vector<GifFrame>(5, {.indices = "\0\0"s}));
  EXPECT_EQ(clip_of(gif, {.max_frames = 5, .max_clip_pixels = 10}).frames.size(), 5u);
  EXPECT_NE(error_of([&] { clip_of(gif, {.max_frames = 4}); }).find("kCapacity: x.gif has at least 5 frames"),
            std::string::npos);
  EXPECT_NE(error_of([&] { clip_of(gif, {.max_clip_pixels = 9}); }).find("kCapacity"), std::string::npos);
}

TEST(GifClip, DamageIsRefused) {
  const std::string gif = make_gif(2, 1, {{.indices = "\0\1"s}, {.indices = "\2\2"s}});
  EXPECT_EQ(
      error_of([&] { clip_of(gif.substr(0, gif.size() - 1)); }).rfind("kInput: x.gif cannot be decoded as GIF", 0), 0u);
  EXPECT_EQ(error_of([&] { clip_of(stored_picture("rgb_5x5.png")); }).rfind("kInput: x.gif is not a GIF", 0), 0u);
  EXPECT_NE(error_of([&] { decode(make_gif(2, 1, {})); }).find("no frame"), std::string::npos);
  EXPECT_NE(error_of([&] { decode(make_gif(2, 1, {{.width = 0, .indices = ""}})); }).find("no pixels"),
            std::string::npos);
}

}  // namespace
}  // namespace vireo
