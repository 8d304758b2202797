// Every decoder on every prefix of a valid file and on random damage: a picture or an Error, nothing else.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "files/image_test_util.h"
#include "vireo/error.h"

namespace vireo {
namespace {

// A few hundred kilopixels keep a header that lies within its limit from slowing the test down.
constexpr ImageLimits kSmall{.max_pixels = 200'000, .max_clip_pixels = 400'000};

// 1 for a picture, 0 for an Error; any other exception fails the test.
int try_decode(const std::string& bytes, PixelRules rules) {
  int pictures = 0;
  try {
    const RgbImage image = decode(bytes, rules, kSmall);
    EXPECT_EQ(image.pixels.size(), size_t{3} * image.width * image.height);
    const ImageSize size = image_size(view(bytes), "x", kSmall);
    EXPECT_EQ(size.width, image.width);
    EXPECT_EQ(size.height, image.height);
    ++pictures;
  } catch (const Error&) {
  }
  try {
    if (sniff_image(view(bytes)) == "GIF") decode_gif_clip(view(bytes), "x", kSmall);
  } catch (const Error&) {
  }
  return pictures;
}

void try_prefixes(const std::string& bytes) {
  for (size_t n = 0; n < bytes.size(); ++n) {
    // A copy of exactly n bytes, so that a sanitizer sees any read beyond it.
    const std::string prefix(bytes.data(), n);
    try_decode(prefix, n % 2 ? PixelRules::kDefault : PixelRules::kReference);
  }
  EXPECT_EQ(try_decode(bytes, PixelRules::kDefault), 1);
}

void try_flips(const std::string& bytes, int count) {
  std::mt19937 random(20240607);
  for (int i = 0; i < count; ++i) {
    std::string damaged = bytes;
    // Headers matter most: half of the flips hit the first bytes.
    const size_t range = i % 2 ? bytes.size() : std::min<size_t>(bytes.size(), 128);
    for (unsigned flips = 1 + random() % 4; flips > 0; --flips) damaged[random() % range] = static_cast<char>(random());
    try_decode(damaged, i % 4 < 2 ? PixelRules::kDefault : PixelRules::kReference);
  }
}

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '.', '_');
  return name;
}

class Damaged : public testing::TestWithParam<const char*> {};

TEST_P(Damaged, Prefixes) {
  try_prefixes(stored_picture(GetParam()));
}
TEST_P(Damaged, Flips) {
  try_flips(stored_picture(GetParam()), 2000);
}

INSTANTIATE_TEST_SUITE_P(Pictures, Damaged,
                         testing::Values("rgb_33x33.png", "palette_transparent_96x96.png", "gray_160x120.jpg",
                                         "exif6_150x100.jpg", "webp_lossy_130x110.webp", "gif_90x60.gif",
                                         "bmp_64x48.bmp"),
                         test_name);

class DamagedLarge : public testing::TestWithParam<const char*> {};

TEST_P(DamagedLarge, Flips) {
  try_flips(stored_picture(GetParam()), 400);
}

INSTANTIATE_TEST_SUITE_P(Pictures, DamagedLarge,
                         testing::Values("progressive_300x200.jpg", "cmyk_160x120.jpg", "gray16_120x90.png",
                                         "graya_200x150.png", "webp_lossless_130x110.webp"),
                         test_name);

}  // namespace
}  // namespace vireo
