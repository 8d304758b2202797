// The body of the picture targets: they differ in their seeds alone. Limits are small, so that a header cannot make a
// run slow.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "files/image_file.h"
#include "fuzz_util.h"

namespace vireo::fuzz {

inline constexpr ImageLimits kSmallLimits{
    .max_pixels = 1 << 16, .max_bytes = 1 << 17, .max_frames = 64, .max_clip_pixels = 1 << 18};

inline void check_image(const RgbImage& image) {
  require(image.width > 0 && image.height > 0, "a picture has pixels");
  require(int64_t{image.width} * image.height <= kSmallLimits.max_pixels, "a picture keeps to its limit");
  require(image.pixels.size() == size_t{3} * image.width * image.height, "a picture has all its pixels");
}

inline void check_clip(const Clip& clip) {
  require(!clip.frames.empty() && clip.fps > 0 && clip.fps <= 100, "a clip has frames and a rate");
  require(clip.frames.size() <= static_cast<size_t>(kSmallLimits.max_frames), "a clip keeps to its limit");
  for (const RgbImage& frame : clip.frames) {
    check_image(frame);
    require(frame.width == clip.frames[0].width && frame.height == clip.frames[0].height, "frames are of one size");
  }
}

inline int try_picture(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  ImageSize stated;
  const bool has_size = accepts([&] { stated = image_size(bytes, "x", kSmallLimits); });
  for (const PixelRules rules : {PixelRules::kDefault, PixelRules::kReference}) {
    accepts([&] {
      const RgbImage image = decode_image(bytes, "x", rules, kSmallLimits);
      check_image(image);
      require(has_size && image.width == stated.width && image.height == stated.height, "image_size tells the truth");
    });
  }
  accepts([&] { check_clip(decode_gif_clip(bytes, "x", kSmallLimits)); });
  return 0;
}

}  // namespace vireo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return vireo::fuzz::try_picture(data, size);
}
