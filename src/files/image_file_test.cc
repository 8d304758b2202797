// What all formats share: recognition, refusals and their sentences, limits before allocation, and JPEG's own
// cases. SPDX-License-Identifier: Apache-2.0
#include "files/image_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "files/exif.h"
#include "files/image_test_util.h"
#include "files/test_files.h"

namespace vireo {
namespace {

using std::string_literals::operator""s;

std::string refusal(const std::string& bytes, const ImageLimits& limits = {}) {
  const std::string sentence = error_of([&] { decode(bytes, PixelRules::kDefault, limits); });
  EXPECT_EQ(error_of([&] { image_size(view(bytes), "x.img", limits); }).substr(0, 5), sentence.substr(0, 5));
  return sentence;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

TEST(ImageFile, SniffsByBytes) {
  EXPECT_EQ(sniff_image(view(stored_picture("rgb_5x5.png"))), "PNG");
  EXPECT_EQ(sniff_image(view(stored_picture("exif6_150x100.jpg"))), "JPEG");
  EXPECT_EQ(sniff_image(view(stored_picture("webp_lossy_130x110.webp"))), "WebP");
  EXPECT_EQ(sniff_image(view(stored_picture("gif_90x60.gif"))), "GIF");
  EXPECT_EQ(sniff_image(view(stored_picture("bmp_64x48.bmp"))), "BMP");
  for (const std::string& other : {""s, "B"s, "BM is a company"s, "GIF90a"s, "RIFF1234WAVE"s, "\x89PN"s})
    EXPECT_EQ(sniff_image(view(other)), "") << other;
}

TEST(ImageFile, OtherFormatsAreNamed) {
  const std::pair<std::string, const char*> kOthers[] = {
      {"", "empty (0 bytes)"},
      {"just some words\n", "text"},
      {"<?xml version='1.0'?>\n<svg xmlns=''/>", "SVG"},
      {"<!DOCTYPE html><html>", "HTML"},
      {"\0\0\0\x18"s
       "ftypheic",
       "HEIC"},
      {"\0\0\0\x18"s
       "ftypavif",
       "AVIF"},
      {"\0\0\0\x18"s
       "ftypisom",
       "video"},
      {"II*\0abc"s, "TIFF"},
      {"MM\0*abc"s, "TIFF"},
      {"\xff\x0a more", "JPEG XL"},
      {"%PDF-1.7", "PDF"},
      {"version https://git-lfs.github.com/spec/v1", "Git LFS"},
      {"\x01\x02\x03\x04", "unknown"},
  };
  for (const auto& [bytes, name] : kOthers) {
    const std::string sentence = refusal(bytes);
    EXPECT_TRUE(has(sentence, "kInput: x.img is ")) << sentence;
    EXPECT_TRUE(has(sentence, name)) << sentence;
    EXPECT_TRUE(has(sentence, "PNG, JPEG, WebP, GIF or BMP")) << sentence;
  }
}

TEST(ImageFile, HeadersOverThePixelLimitAreRefused) {
  const std::string png =
      "\x89PNG\r\n\x1a\n"s + be32(13) + "IHDR" + be32(30000) + be32(30000) + "\x08\x02\0\0\0"s + be32(0);
  const std::string bmp = "BM" + le32(0) + le32(0) + le32(54) + le32(40) + le32(30000) + le32(30000) + le16(1) +
                          le16(24) + std::string(24, '\0');
  const std::string gif =
      "GIF89a" + le16(30000) + le16(30000) + "\0\0\0,"s + le16(0) + le16(0) + le16(1) + le16(1) + "\0\2"s;
  const std::string webp = "RIFF" + le32(22) + "WEBPVP8X" + le32(10) + le32(0) + "\x2f\x75\0\x2f\x75\0"s;
  for (const std::string& bytes : {png, bmp, gif, webp}) {
    const std::string sentence = refusal(bytes);
    EXPECT_TRUE(has(sentence, "kCapacity: x.img is 30000 x 30000 pixels")) << sentence;
    EXPECT_TRUE(has(sentence, "100000000")) << sentence;
  }
}

TEST(ImageFile, LimitsAreExact) {
  const std::string picture = stored_picture("rgb_33x33.png");
  EXPECT_EQ(decode(picture, PixelRules::kDefault, {.max_pixels = 33 * 33}).width, 33);
  EXPECT_TRUE(has(refusal(picture, {.max_pixels = 33 * 33 - 1}), "kCapacity")) << "one pixel over";
  EXPECT_EQ(decode(picture, PixelRules::kDefault, {.max_bytes = picture.size()}).width, 33);
  EXPECT_TRUE(has(refusal(picture, {.max_bytes = picture.size() - 1}), "kCapacity")) << "one byte over";
}

TEST(ImageFile, SizesOverTheLimitAreRefusedInJpegToo) {
  EXPECT_TRUE(has(refusal(stored_picture("rgb_500x333.jpg"), {.max_pixels = 1000}), "500 x 333"));
}

TEST(Jpeg, TruncatedFilesAreRefused) {
  for (const char* file : {"rgb_500x333.jpg", "progressive_300x200.jpg", "gray_160x120.jpg", "cmyk_160x120.jpg"}) {
    const std::string whole = stored_picture(file);
    for (double part : {0.3, 0.6, 0.95})
      EXPECT_TRUE(has(error_of([&] { decode(whole.substr(0, static_cast<size_t>(part * whole.size()))); }),
                      "kInput: x.img cannot be decoded as JPEG"))
          << file << " " << part;
  }
}

TEST(Jpeg, GrayHasEqualChannels) {
  const RgbImage image = decode(stored_picture("gray_160x120.jpg"));
  ASSERT_EQ(image.pixels.size(), 160u * 120u * 3u);
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    ASSERT_EQ(image.pixels[i], image.pixels[i + 1]);
    ASSERT_EQ(image.pixels[i], image.pixels[i + 2]);
  }
}

double mean_difference(const RgbImage& a, const RgbImage& b) {
  double sum = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(a.pixels[i] - b.pixels[i]);
  return sum / static_cast<double>(a.pixels.size());
}

// The eight files store one picture (with noise of about 9 grey levels) under eight tags; the wrong turn
// differs by over 40.
TEST(Jpeg, EveryOrientationIsApplied) {
  const RgbImage stored = decode(stored_picture("exif1_150x100.jpg"));
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const RgbImage image = decode(stored_picture("exif" + std::to_string(orientation) + "_150x100.jpg"));
    const RgbImage expected = apply_orientation(stored, orientation);
    ASSERT_EQ(image.width, expected.width) << orientation;
    ASSERT_EQ(image.pixels.size(), expected.pixels.size()) << orientation;
    EXPECT_LT(mean_difference(image, expected), 12) << orientation;
  }
}

// A progressive file whose second scan is there a thousand times.
TEST(Jpeg, EndlessScansAreRefusedQuickly) {
  const std::string file = stored_picture("progressive_300x200.jpg");
  const size_t scan = file.find("\xff\xda", file.find("\xff\xda") + 2), end = file.find("\xff\xc4", scan);
  ASSERT_LT(scan, end);
  ASSERT_LT(end, file.size());
  std::string many = file.substr(0, end);
  for (int i = 0; i < 1000; ++i) many += file.substr(scan, end - scan);
  many += file.substr(end);
  const auto start = std::chrono::steady_clock::now();
  const std::string sentence = error_of([&] { decode(many); });
  EXPECT_TRUE(has(sentence, "more than 64 scans")) << sentence;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace vireo
