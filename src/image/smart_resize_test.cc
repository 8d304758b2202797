// Target sizes, refusals and frame sampling with values checked against the reference implementation.
// SPDX-License-Identifier: Apache-2.0
#include "image/smart_resize.h"

#include <gtest/gtest.h>

#include <climits>
#include <limits>
#include <string>

#include "vireo/error.h"

namespace vireo {
namespace {

Size by_default_limits(int height, int width) {
  const PixelConfig config;
  return smart_resize({height, width}, config.factor(), config.min_pixels, config.max_pixels);
}

template <typename F>
ErrorKind kind_of(F&& call, std::string* sentence = nullptr) {
  try {
    call();
  } catch (const Error& e) {
    if (sentence) *sentence = e.what();
    return e.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::kDevice;
}

TEST(SmartResize, TableOfTheDefaultLimits) {
  struct Row {
    Size from, to;
  };
  constexpr Row kRows[] = {
      {{1, 1}, {256, 256}},          {{1, 200}, {32, 3648}},       {{10, 2000}, {32, 3648}},
      {{100, 100}, {256, 256}},      {{240, 320}, {256, 320}},     {{250, 262}, {256, 256}},
      {{480, 640}, {480, 640}},      {{720, 1280}, {704, 1280}},   {{1024, 1792}, {1024, 1792}},
      {{1080, 1920}, {1088, 1920}},  {{1365, 2048}, {1376, 2048}}, {{3024, 4032}, {3008, 4032}},
      {{4096, 4096}, {4096, 4096}},  {{4100, 4100}, {4096, 4096}}, {{8000, 6000}, {4704, 3520}},
      {{6000, 12000}, {2880, 5792}}, {{1000, 33}, {1440, 64}},     {{20, 4000}, {32, 4000}},
      {{15, 2900}, {32, 3584}},
  };
  for (const Row& row : kRows)
    EXPECT_EQ(by_default_limits(row.from.height, row.from.width), row.to) << row.from.height << "," << row.from.width;
}

TEST(SmartResize, HalvesGoToEven) {
  EXPECT_EQ(smart_resize({720, 2160}, 32, 1, 1 << 30), (Size{704, 2176}));
  EXPECT_EQ(smart_resize({48, 1080}, 32, 1, 1 << 30), (Size{64, 1088}));
}

TEST(SmartResize, AspectRatioAbove200IsRefusedByName) {
  std::string sentence;
  EXPECT_EQ(kind_of([] { by_default_limits(1, 201); }, &sentence), ErrorKind::kInput);
  EXPECT_NE(sentence.find("201 x 1"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("200"), std::string::npos) << sentence;
  EXPECT_EQ(kind_of([] { by_default_limits(INT_MAX, 1); }), ErrorKind::kInput);
}

TEST(SmartResize, EmptyPicturesAndImpossibleLimitsAreRefused) {
  EXPECT_EQ(kind_of([] { by_default_limits(0, 5); }), ErrorKind::kInput);
  EXPECT_EQ(kind_of([] { by_default_limits(5, -5); }), ErrorKind::kInput);
  EXPECT_EQ(kind_of([] { smart_resize({10, 10}, 32, 2000, 1000); }), ErrorKind::kUsage);
  EXPECT_EQ(kind_of([] { smart_resize({10, 10}, 32, 0, 1000); }), ErrorKind::kUsage);
}

TEST(SmartResizeVideo, TableOfTheDefaultLimits) {
  const VideoConfig config;
  EXPECT_EQ(smart_resize_video(6, {720, 1280}, config), (Size{704, 1280}));
  EXPECT_EQ(smart_resize_video(8, {480, 640}, config), (Size{480, 640}));
  EXPECT_EQ(smart_resize_video(200, {1080, 1920}, config), (Size{256, 448}));
  EXPECT_EQ(smart_resize_video(20, {720, 1280}, config), (Size{704, 1280}));
  EXPECT_EQ(smart_resize_video(4, {64, 48}, config), (Size{64, 64}));
}

TEST(SmartResizeVideo, SmallSidesAreEnlargedFirst) {
  EXPECT_EQ(smart_resize_video(2, {8, 16}, VideoConfig{}), (Size{32, 64}));
  EXPECT_EQ(smart_resize_video(2, {16, 16}, VideoConfig{}), (Size{64, 64}));
}

TEST(SmartResizeVideo, RefusesSingleFramesAndLongSides) {
  EXPECT_EQ(kind_of([] { smart_resize_video(1, {64, 64}, VideoConfig{}); }), ErrorKind::kInput);
  EXPECT_EQ(kind_of([] { smart_resize_video(2, {1, INT_MAX}, VideoConfig{}); }), ErrorKind::kInput);
  EXPECT_EQ(kind_of([] { smart_resize_video(2, {0, 64}, VideoConfig{}); }), ErrorKind::kInput);
}

TEST(SampleFrames, WorkedExamples) {
  const VideoConfig config;
  EXPECT_EQ(sample_frames(90, 30, config), (std::vector<int>{0, 18, 36, 53, 71, 89}));
  EXPECT_EQ(sample_frames(30, 30, config), (std::vector<int>{0, 10, 19, 29}));
  EXPECT_EQ(sample_frames(100, 25, config).size(), 8u);
  EXPECT_EQ(sample_frames(3000, 30, config).size(), 200u);
  EXPECT_EQ(sample_frames(300, 29.97, config).size(), 20u);
}

TEST(SampleFrames, NeverMoreThanThereAreNorThanTheLimit) {
  const VideoConfig config;
  EXPECT_EQ(sample_frames(3, 30, config), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(sample_frames(1, 30, config), std::vector<int>{0});
  EXPECT_EQ(sample_frames(1 << 20, 1, config).size(), 768u);
  EXPECT_EQ(sample_frames(1 << 20, 1, config).back(), (1 << 20) - 1);
  EXPECT_EQ(sample_frames(100, 1e-300, config).size(), 100u);
}

TEST(SampleFrames, UnknownRatesAre24) {
  const VideoConfig config;
  const std::vector<int> at24 = sample_frames(240, 24, config);
  EXPECT_EQ(at24.size(), 20u);
  for (double fps : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    EXPECT_EQ(sample_frames(240, fps, config), at24) << fps;
  EXPECT_EQ(kind_of([&] { sample_frames(0, 24, config); }), ErrorKind::kInput);
}

}  // namespace
}  // namespace vireo
