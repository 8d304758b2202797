// The orientation tag in every container and byte order, hostile directories, and the eight ways to turn a
// picture. SPDX-License-Identifier: Apache-2.0
#include "files/exif.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>

#include "files/image_test_util.h"

namespace vireo {
namespace {

using std::string_literals::operator""s;

int orientation_of(const std::string& tiff) {
  return exif_orientation({reinterpret_cast<const uint8_t*>(tiff.data()), tiff.size()});
}

// A 3 x 2 picture whose red channel reads 1 2 3 / 4 5 6.
RgbImage numbered() {
  RgbImage image{3, 2, {}};
  for (uint8_t v = 1; v <= 6; ++v) image.pixels.insert(image.pixels.end(), {v, 100, 200});
  return image;
}

Pixels reds(const RgbImage& image) {
  Pixels values;
  for (size_t i = 0; i < image.pixels.size(); i += 3) values.push_back(image.pixels[i]);
  return values;
}

TEST(Orientation, EightWays) {
  struct Way {
    int width, height;
    Pixels values;
  };
  const Way kWays[] = {
      {3, 2, {1, 2, 3, 4, 5, 6}}, {3, 2, {3, 2, 1, 6, 5, 4}}, {3, 2, {6, 5, 4, 3, 2, 1}}, {3, 2, {4, 5, 6, 1, 2, 3}},
      {2, 3, {1, 4, 2, 5, 3, 6}}, {2, 3, {4, 1, 5, 2, 6, 3}}, {2, 3, {6, 3, 5, 2, 4, 1}}, {2, 3, {3, 6, 2, 5, 1, 4}},
  };
  for (int o = 1; o <= 8; ++o) {
    const RgbImage turned = apply_orientation(numbered(), o);
    const Way& way = kWays[o - 1];
    EXPECT_EQ(turned.width, way.width) << o;
    EXPECT_EQ(turned.height, way.height) << o;
    EXPECT_EQ(reds(turned), way.values) << o;
    EXPECT_EQ(turned.pixels[4], 100) << o;
    EXPECT_EQ(apply_orientation(ImageSize{3, 2}, o).width, way.width) << o;
  }
}

TEST(Exif, BothByteOrdersAndAllTypes) {
  for (int o = 1; o <= 8; ++o) EXPECT_EQ(orientation_of(exif_tiff(o)), o);
  const std::string little = "II*\0"s + le32(8) + le16(2) + le16(0x010f) + le16(2) + le32(4) + le32(0) + le16(0x0112);
  EXPECT_EQ(orientation_of(little + le16(3) + le32(1) + le16(6) + le16(0)), 6);
  EXPECT_EQ(orientation_of(little + le16(4) + le32(1) + le32(5)), 5);
  EXPECT_EQ(orientation_of(little + le16(1) + le32(1) + "\x03\0\0\0"s), 3);
  EXPECT_EQ(orientation_of(little + le16(2) + le32(1) + "6\0\0\0"s), 1);
}

TEST(Exif, DamageMeansUpright) {
  EXPECT_EQ(orientation_of(""), 1);
  EXPECT_EQ(orientation_of("not a TIFF structure at all"), 1);
  EXPECT_EQ(orientation_of(exif_tiff(0)), 1);
  EXPECT_EQ(orientation_of(exif_tiff(9)), 1);
  EXPECT_EQ(orientation_of("MM\0*"s + be32(0xffffffff)), 1);
  EXPECT_EQ(orientation_of("MM\0*"s + be32(8) + be16(0xffff)), 1);
  const std::string whole = exif_tiff(6);
  for (size_t n = 0; n < whole.size(); ++n) {
    const int o = orientation_of(whole.substr(0, n));
    EXPECT_TRUE(o == 1 || o == 6) << n;
  }
}

std::string png_chunk(const std::string& name, const std::string& data) {
  const std::string body = name + data;
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return be32(data.size()) + body + be32(crc);
}

TEST(Exif, PngBeforeAndAfterTheData) {
  Pixels raw;
  for (uint8_t v = 1; v <= 6; ++v) raw.push_back(v);
  const std::string png = make_png({3, 2, 8, PNG_COLOR_TYPE_GRAY}, raw);
  const std::string chunk = png_chunk("eXIf", exif_tiff(6));
  const size_t after_header = 8 + 25, end = png.size() - 12;
  for (size_t at : {after_header, end}) {
    const RgbImage image = decode(png.substr(0, at) + chunk + png.substr(at));
    EXPECT_EQ(image.width, 2);
    EXPECT_EQ(reds(image), (Pixels{4, 1, 5, 2, 6, 3}));
    EXPECT_EQ(image_size(view(png.substr(0, at) + chunk + png.substr(at)), "x").height, 3);
  }
}

TEST(Exif, WebP) {
  const std::string simple = stored_picture("webp_lossy_130x110.webp");
  const std::string canvas = "\x81\0\0\x6d\0\0"s;  // 130 x 110, each less one
  for (const std::string& prefix : {""s, "Exif\0\0"s}) {
    const std::string exif = prefix + exif_tiff(8);
    const std::string body =
        "WEBPVP8X"s + le32(10) + le32(8) + canvas + simple.substr(12) + "EXIF" + le32(exif.size()) + exif;
    const RgbImage image = decode("RIFF" + le32(body.size()) + body);
    EXPECT_EQ(image.width, 110);
    EXPECT_EQ(image.height, 130);
    EXPECT_EQ(image.pixels, apply_orientation(decode(simple), 8).pixels);
  }
}

TEST(Exif, JpegWithPaddingAndOtherSegments) {
  const std::string jpeg = stored_picture("rgb_500x333.jpg");
  const std::string exif = "Exif\0\0"s + exif_tiff(5);
  const std::string segments = "\xff\xe1" + be16(2 + 7) + "http://" + "\xff\xff\xff\xe1" + be16(2 + exif.size()) + exif;
  const RgbImage image = decode(jpeg.substr(0, 2) + segments + jpeg.substr(2));
  EXPECT_EQ(image.width, 333);
  EXPECT_EQ(image.pixels, apply_orientation(decode(jpeg), 5).pixels);
}

}  // namespace
}  // namespace vireo
