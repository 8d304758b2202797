// SPDX-License-Identifier: Apache-2.0
#include "engine/media.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "files/test_files.h"

namespace vireo {
namespace {

Medium picture(int width, int height) {
  Medium m{.name = "picture"};
  m.frames.push_back({width, height, std::vector<uint8_t>(static_cast<size_t>(width) * height * 3, 90)});
  return m;
}

Medium clip(int frames, int width, int height) {
  Medium m = picture(width, height);
  m.video = true;
  m.name = "clip";
  m.fps = 2;
  m.frames.resize(static_cast<size_t>(frames), m.frames[0]);
  for (int i = 0; i < frames; ++i) m.frame_indices.push_back(i);
  return m;
}

// The published preprocessor's limits: 65,536 to 16,777,216 pixels.
TEST(Media, BudgetsOfAPictureOf2172By724) {
  const Medium m = picture(2172, 724);
  const auto grid = [&](std::optional<int64_t> budget) { return grid_of(m, with_budget({}, budget)); };
  EXPECT_EQ(grid(std::nullopt).patches(), 6256);
  EXPECT_EQ(grid(1'000'000).patches(), 3888);
  EXPECT_EQ(grid(500'000).patches(), 1824);
  EXPECT_EQ(grid(250'000).patches(), 972);
  // With the 17 tokens of the template and of "Describe this image in one sentence.": 1581, 989, 473, 260.
  EXPECT_EQ(grid(std::nullopt).tokens(2), 1581 - 17);
  EXPECT_EQ(grid(1'000'000).tokens(2), 989 - 17);
  EXPECT_EQ(grid(500'000).tokens(2), 473 - 17);
  EXPECT_EQ(grid(250'000).tokens(2), 260 - 17);
}

TEST(Media, ABudgetTakesThePlaceOfTheCheckpointsLimit) {
  PreprocessorConfig config;
  config.image.max_pixels = 100'000;
  const Medium m = picture(640, 640);
  EXPECT_LE(grid_of(m, config).patches() * 256, 100'000);
  EXPECT_EQ(grid_of(m, with_budget(config, 500'000)), (Grid{1, 40, 40}));
  // Below the least area, which then gives way.
  EXPECT_EQ(grid_of(m, with_budget(config, 1024)), (Grid{1, 2, 2}));
  EXPECT_EQ(grid_of(m, with_budget(config, 1)), (Grid{1, 2, 2}));
}

TEST(Media, ABudgetCountsOneFrameOfAClip) {
  const Medium m = clip(4, 320, 320);
  EXPECT_EQ(grid_of(m, PreprocessorConfig{}), (Grid{2, 20, 20}));
  EXPECT_EQ(grid_of(m, with_budget({}, 102'400)), (Grid{2, 20, 20}));
  EXPECT_EQ(grid_of(m, with_budget({}, 25'600)), (Grid{2, 10, 10}));
  // The picture's limit says nothing about clips.
  PreprocessorConfig config;
  config.image.min_pixels = config.image.max_pixels = 1024;
  EXPECT_EQ(grid_of(m, config), (Grid{2, 20, 20}));
}

TEST(Media, FitBudgetTakesTheLargestThatFits) {
  const PreprocessorConfig config;
  const std::vector<Medium> media = {picture(640, 640), picture(640, 480)};
  const auto tokens = [&](std::optional<int64_t> budget) {
    int64_t n = 0;
    for (const Medium& m : media) n += grid_of(m, with_budget(config, budget)).tokens(2);
    return n;
  };
  EXPECT_EQ(tokens(std::nullopt), 400 + 300);
  EXPECT_EQ(fit_budget(media, config, 700, std::nullopt), std::nullopt);
  EXPECT_EQ(fit_budget(media, config, 700, 1'000'000), 1'000'000);
  const auto budget = fit_budget(media, config, 300, 1'000'000);
  ASSERT_TRUE(budget);
  EXPECT_LE(tokens(*budget), 300);
  EXPECT_GT(tokens(*budget + 32 * 32), 300);
  // Not even the smallest pictures fit: the smallest budget, and the caller counts.
  EXPECT_EQ(fit_budget(media, config, 1, 1'000'000), 1024);
}

TEST(Media, ACapNeverRaisesTheCheckpointsLimit) {
  PreprocessorConfig config;
  config.image.max_pixels = 100'000;
  EXPECT_EQ(fit_budget({picture(640, 640)}, config, 4000, 1'000'000), 100'000);
}

Request request_with(Part part) {
  Request request;
  request.messages.push_back({.role = "user", .content = {std::move(part)}});
  return request;
}

std::string refusal(Part part) {
  return error_of([&] { load_media(request_with(std::move(part)), {}, PixelRules::kDefault); });
}

const std::string kScenes = VIREO_SOURCE_DIR "/tests/data/scenes/";

TEST(Media, RawRowsMayBeFartherApartThanTheirPixels) {
  std::vector<uint8_t> rows = {1, 2, 3, 4, 5, 6, 99, 99, 7, 8, 9, 10, 11, 12, 99, 99};
  const Picture raw{.rgb = rows.data(), .width = 2, .height = 2, .stride = 8};
  const auto media = load_media(request_with({.kind = Part::Kind::kImage, .image = raw}), {}, PixelRules::kDefault);
  ASSERT_EQ(media.size(), 1u);
  EXPECT_EQ(media[0].name, "image 1");
  EXPECT_EQ(media[0].frames[0].pixels, (std::vector<uint8_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
}

TEST(Media, BadRawPicturesAreRefused) {
  uint8_t pixel[3] = {};
  const auto raw = [&](int width, int height, int64_t stride) {
    return refusal(
        {.kind = Part::Kind::kImage, .image = {.rgb = pixel, .width = width, .height = height, .stride = stride}});
  };
  EXPECT_EQ(raw(2, 1, 3),
            "kInput: a raw picture of 2x1 pixels with rows of 3 bytes is not possible: rows need at least 3 bytes a "
            "pixel");
  EXPECT_NE(raw(0, 1, 3), "");
  EXPECT_NE(raw(1, -1, 3), "");
}

TEST(Media, ClipsNeedARateAndTwoFrames) {
  const Picture frame{.path = kScenes + "s000.png"};
  const auto clip = [&](std::vector<Picture> frames, double fps) {
    Part part{.kind = Part::Kind::kVideo};
    part.video = {.frames = std::move(frames), .fps = fps};
    return refusal(std::move(part));
  };
  EXPECT_EQ(clip({frame, frame}, 2), "");
  EXPECT_EQ(clip({frame, frame}, 0), "kInput: video 1 has no frame rate: give one with --fps (or \"fps\")");
  EXPECT_EQ(clip({frame, frame}, 1e-300),
            "kInput: video 1 has a frame rate of 1e-300: use 0.001 to 1000 frames per second");
  EXPECT_NE(clip({frame, frame}, -1), "");
  EXPECT_NE(clip({frame, frame}, 1e9), "");
  EXPECT_NE(clip({frame, frame}, NAN), "");
  EXPECT_EQ(clip({frame}, 2),
            "kInput: video 1 has 1 frame(s) and a clip needs at least 2: send a single frame as an image");
  EXPECT_NE(clip({}, 2), "");
}

TEST(Media, FilesAreNamedInErrors) {
  const Part missing{.kind = Part::Kind::kImage, .image = {.path = "/no/such.png"}};
  EXPECT_EQ(refusal(missing), "kNotFound: cannot open /no/such.png: No such file or directory");
  const Part strange{.kind = Part::Kind::kImage, .image = {.path = "/no/\x1b[2J\n.png"}};
  EXPECT_EQ(refusal(strange), R"(kNotFound: cannot open /no/\x1b[2J\x0a.png: No such file or directory)");
  Part gif{.kind = Part::Kind::kVideo};
  gif.video.gif = Picture{.path = kScenes + "s000.png"};
  EXPECT_EQ(refusal(gif), "kInput: " + kScenes + "s000.png is not a GIF; clips are read from animated GIFs");
}

}  // namespace
}  // namespace vireo
