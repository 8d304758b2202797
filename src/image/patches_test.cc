// The patch order against the formula, grids, and the time stamps of clips.
// SPDX-License-Identifier: Apache-2.0
#include "image/patches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "vireo/error.h"

namespace vireo {
namespace {

// A value that tells channel, frame, row and column apart.
uint8_t marked(int c, int frame, int y, int x) {
  return static_cast<uint8_t>(c * 85 + frame * 31 + y * 7 + x * 3 + (y / 16) * 11 + (x / 16) * 17);
}

RgbImage marked_frame(int height, int width, int frame) {
  RgbImage image{width, height, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c) image.pixels.push_back(marked(c, frame, y, x));
  return image;
}

// Compares every value with where the order says it comes from; `last` is the last frame there is.
void expect_order(const Patches& patches, int last) {
  const Grid g = patches.grid;
  size_t wrong = 0, i = 0;
  for (int k = 0; k < g.t; ++k)
    for (int bh = 0; bh < g.h / 2; ++bh)
      for (int bw = 0; bw < g.w / 2; ++bw)
        for (int ih = 0; ih < 2; ++ih)
          for (int iw = 0; iw < 2; ++iw)
            for (int c = 0; c < 3; ++c)
              for (int t = 0; t < 2; ++t)
                for (int y = 0; y < 16; ++y)
                  for (int x = 0; x < 16; ++x)
                    wrong += patches.pixels[i++] !=
                             marked(c, std::min(2 * k + t, last), (2 * bh + ih) * 16 + y, (2 * bw + iw) * 16 + x);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(i, patches.pixels.size());
}

PixelConfig any_size() {
  PixelConfig config;
  config.min_pixels = 1024;
  return config;
}

TEST(Patches, PictureOrder) {
  const Patches patches = image_patches(marked_frame(64, 96, 0), any_size());
  EXPECT_EQ(patches.grid, (Grid{1, 4, 6}));
  EXPECT_EQ(patches.grid.tokens(2), 6);
  EXPECT_EQ(patches.pixels.size(), 24u * 1536u);
  EXPECT_TRUE(patches.seconds.empty());
  expect_order(patches, 0);
}

TEST(Patches, ThreadsMakeNoDifference) {
  RgbImage image{700, 450, {}};
  for (int i = 0; i < 700 * 450 * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 2654435761u >> 24));
  const PixelConfig config;
  const Patches alone = image_patches(image, config, 1);
  for (const int threads : {2, 4, 0}) EXPECT_EQ(image_patches(image, config, threads).pixels, alone.pixels) << threads;
}

TEST(Patches, ClipOrderRepeatsAnOddLastFrame) {
  std::vector<RgbImage> frames;
  for (int i = 0; i < 5; ++i) frames.push_back(marked_frame(64, 96, i));
  const std::vector<int> indices = {0, 3, 6, 9, 12};
  const Patches patches = video_patches(frames, indices, 4, VideoConfig{});
  EXPECT_EQ(patches.grid, (Grid{3, 4, 6}));
  expect_order(patches, 4);
  EXPECT_EQ(patches.seconds, (std::vector<double>{0.375, 1.875, 3.0}));
}

TEST(Patches, ClipsOfUnequalFramesAreRefused) {
  const std::vector<RgbImage> frames = {marked_frame(64, 96, 0), marked_frame(64, 64, 1)};
  const std::vector<int> two = {0, 1}, one = {0};
  EXPECT_THROW(video_patches(frames, two, 4, VideoConfig{}), Error);
  EXPECT_THROW(video_patches(std::span(frames).first(1), two, 4, VideoConfig{}), Error);
  EXPECT_THROW(video_patches(std::span(frames).first(1), one, 4, VideoConfig{}), Error);
  EXPECT_THROW(video_patches({}, {}, 4, VideoConfig{}), Error);
}

TEST(Patches, SizesComeFromTheConfig) {
  PixelConfig config = any_size();
  config.patch_size = 8;
  config.temporal_patch_size = 3;
  config.merge_size = 1;
  const Patches patches = image_patches(marked_frame(32, 48, 0), config);
  EXPECT_EQ(patches.grid, (Grid{1, 4, 6}));
  EXPECT_EQ(patches.pixels.size(), 24u * 3 * 3 * 64);
  // Patch 1 is the second of the first row: its first value of channel 1, frame 2 is the picture's at (0, 8).
  EXPECT_EQ(patches.pixels[3 * 3 * 64 + (1 * 3 + 2) * 64], marked(1, 0, 0, 8));
}

TEST(Patches, GridsOfPictures) {
  const PixelConfig config;
  EXPECT_EQ(image_grid({1365, 2048}, config), (Grid{1, 86, 128}));
  EXPECT_EQ(image_grid({724, 2172}, config).patches(), 6256);
}

std::string stamp(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", seconds);
  return text;
}

// The stamps of a clip without its pixels: tiny frames with the same numbers.
std::vector<std::string> stamps(int total, double fps) {
  VideoConfig config;
  const std::vector<int> indices = sample_frames(total, fps, config);
  const std::vector<RgbImage> frames(indices.size(), marked_frame(32, 32, 0));
  std::vector<std::string> texts;
  for (double t : video_patches(frames, indices, fps, config).seconds) texts.push_back(stamp(t));
  return texts;
}

TEST(Patches, VideoTable) {
  const VideoConfig config;
  struct Row {
    int total;
    double fps;
    Size size;
    Grid grid;
    int64_t tokens;
  };
  constexpr Row kRows[] = {
      {90, 30, {720, 1280}, {3, 44, 80}, 2640},
      {100, 25, {480, 640}, {4, 30, 40}, 1200},
      {3000, 30, {1080, 1920}, {100, 16, 28}, 11200},
      {300, 29.97, {720, 1280}, {10, 44, 80}, 8800},
      {30, 30, {64, 48}, {2, 4, 4}, 8},
  };
  for (const Row& row : kRows) {
    const int frames = static_cast<int>(sample_frames(row.total, row.fps, config).size());
    EXPECT_EQ(video_grid(frames, row.size, config), row.grid) << row.total;
    EXPECT_EQ(row.grid.tokens(config.merge_size), row.tokens);
  }
}

TEST(Patches, VideoTimeStamps) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(stamps(90, 30), (Texts{"0.3", "1.5", "2.7"}));
  EXPECT_EQ(stamps(100, 25), (Texts{"0.3", "1.4", "2.6", "3.7"}));
  EXPECT_EQ(stamps(30, 30), (Texts{"0.2", "0.8"}));
  const Texts many = stamps(3000, 30);
  ASSERT_EQ(many.size(), 100u);
  EXPECT_EQ((Texts{many[0], many[1], many[2], many[99]}), (Texts{"0.2", "1.2", "2.2", "99.7"}));
}

}  // namespace
}  // namespace vireo
