// Picture bytes to 8-bit RGB: PNG, JPEG, WebP, GIF (first frame, or all frames as a clip) and BMP, told apart
// by their bytes, never by name. Limits are checked in the header, before anything of the picture's size is
// allocated. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vireo {

// Interleaved 8-bit R, G, B, rows dense, top row first.
struct RgbImage {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> pixels;  // height * width * 3
};

// How pixels become RGB where the reference processor and common sense differ (contract of pixel rules):
// kDefault: alpha over white, 16-bit grey by its high byte. kReference: alpha dropped, 16-bit grey saturated
// at 255, as Pillow's convert("RGB") does. The EXIF orientation is applied in both.
enum class PixelRules { kDefault, kReference };

struct ImageLimits {
  int64_t max_pixels = 100'000'000;       // width * height, before decoding
  size_t max_bytes = 256u << 20;          // of the encoded file
  int max_frames = 4096;                  // of an animation
  int64_t max_clip_pixels = 500'000'000;  // of all frames of an animation together
};

// "PNG", "JPEG", "WebP", "GIF", "BMP"; empty when the bytes are none of them.
std::string sniff_image(std::span<const std::byte> bytes);

// `what` names the picture in errors. Throws Error(kInput) for bytes that are not a picture (naming the
// formats that are read, and the format when it is a known other one such as HEIC, AVIF, TIFF), truncated or
// damaged data; Error(kCapacity) for a limit. For animations the first frame.
RgbImage decode_image(std::span<const std::byte> bytes, const std::string& what, PixelRules rules,
                      const ImageLimits& limits = {});

// Width and height after orientation, from the header alone; same errors.
struct ImageSize {
  int width = 0;
  int height = 0;
};
ImageSize image_size(std::span<const std::byte> bytes, const std::string& what, const ImageLimits& limits = {});

// All frames of an animated GIF, composited as a browser shows them (disposal methods, transparency over
// white), with the frame rate that its mean delay gives (delays under 20 ms count as 100 ms).
struct Clip {
  std::vector<RgbImage> frames;
  double fps = 0;
};
Clip decode_gif_clip(std::span<const std::byte> bytes, const std::string& what, const ImageLimits& limits = {});

}  // namespace vireo
