// The resampling filter on rows and a ramp whose results in the reference are known, and its border cases.
// SPDX-License-Identifier: Apache-2.0
#include "image/resize.h"

#include <gtest/gtest.h>

#include <vector>

namespace vireo {
namespace {

using Values = std::vector<int>;

// A picture whose channels are `values`, 255 - `values` and zero.
RgbImage picture(int width, int height, const Values& values) {
  RgbImage image{width, height, {}};
  for (int v : values)
    for (int channel : {v, 255 - v, 0}) image.pixels.push_back(static_cast<uint8_t>(channel));
  return image;
}

Values channel(const RgbImage& image, int c) {
  Values values;
  for (size_t i = c; i < image.pixels.size(); i += 3) values.push_back(image.pixels[i]);
  return values;
}

const Values kRow = {0, 50, 100, 255, 255, 30};

struct Known {
  int size;
  Values values;
};
const Known kResized[] = {
    {9, {0, 21, 57, 86, 181, 255, 255, 136, 15}},
    {4, {14, 92, 255, 109}},
    {13, {0, 6, 30, 55, 71, 104, 181, 252, 255, 255, 179, 61, 9}},
    {3, {23, 183, 159}},
};

TEST(Resize, KnownRows) {
  for (const Known& known : kResized) EXPECT_EQ(channel(resize(picture(6, 1, kRow), {1, known.size}), 0), known.values);
}

TEST(Resize, ColumnsGiveWhatRowsGive) {
  for (const Known& known : kResized) EXPECT_EQ(channel(resize(picture(1, 6, kRow), {known.size, 1}), 0), known.values);
}

TEST(Resize, KnownRamp) {
  Values ramp;
  for (int i = 0; i < 16; ++i) ramp.push_back(17 * i);
  EXPECT_EQ(channel(resize(picture(4, 4, ramp), {5, 6}), 0),
            (Values{0,   4,   17,  28,  41,  49,  43,  51,  64,  75,  88,  96,  101, 109, 122,
                    133, 146, 154, 159, 167, 180, 191, 204, 212, 206, 214, 227, 238, 251, 255}));
}

TEST(Resize, ChannelsDoNotMix) {
  const RgbImage out = resize(picture(6, 1, Values(6, 40)), {3, 11});
  EXPECT_EQ(channel(out, 0), Values(33, 40));
  EXPECT_EQ(channel(out, 1), Values(33, 215));
  EXPECT_EQ(channel(out, 2), Values(33, 0));
}

TEST(Resize, TheSameSizeIsTheSamePicture) {
  const RgbImage image = picture(6, 1, kRow);
  EXPECT_EQ(resize(image, {1, 6}).pixels, image.pixels);
}

// Rows are taken in blocks and runs inside: every remainder must come out like the row alone.
TEST(Resize, EveryRowCountAndWidthAgreesWithSingleRows) {
  for (int height : {1, 15, 16, 17, 33}) {
    Values values;
    for (int y = 0; y < height; ++y)
      for (int v : kRow) values.push_back((v + 7 * y) % 256);
    const RgbImage wide = resize(picture(6, height, values), {height, 9});
    for (int y = 0; y < height; ++y) {
      const Values row(values.begin() + 6 * y, values.begin() + 6 * (y + 1));
      const Values expected = channel(resize(picture(6, 1, row), {1, 9}), 0);
      const Values all = channel(wide, 0);
      EXPECT_EQ(Values(all.begin() + 9 * y, all.begin() + 9 * (y + 1)), expected) << height << " row " << y;
    }
  }
}

TEST(Resize, EveryWidthAgreesWithSingleColumns) {
  for (int width : {1, 21, 22, 43, 64}) {
    Values values;
    for (int v : kRow)
      for (int x = 0; x < width; ++x) values.push_back((v + 11 * x) % 256);
    const Values tall = channel(resize(picture(width, 6, values), {13, width}), 0);
    for (int x = 0; x < width; ++x) {
      Values column;
      for (int y = 0; y < 6; ++y) column.push_back(values[y * width + x]);
      const Values expected = channel(resize(picture(1, 6, column), {13, 1}), 0);
      for (int y = 0; y < 13; ++y) EXPECT_EQ(tall[y * width + x], expected[y]) << width << " at " << x << "," << y;
    }
  }
}

TEST(Resize, OnePixelFillsAndAllShrinkToOne) {
  EXPECT_EQ(channel(resize(picture(1, 1, {77}), {7, 5}), 0), Values(35, 77));
  EXPECT_EQ(channel(resize(picture(500, 1, Values(500, 200)), {1, 1}), 0), Values{200});
}

}  // namespace
}  // namespace vireo
