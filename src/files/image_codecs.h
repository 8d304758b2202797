// What the picture decoders share: their source, their limits and the blend over white. Private to src/files.
// A decoder gets bytes whose signature it has claimed, checks the size that the header states before it
// allocates, and returns the picture as stored: the orientation is applied by image_file.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "files/image_file.h"

namespace vireo {

using Bytes = std::span<const uint8_t>;

struct ImageSource {
  Bytes bytes;
  std::string what;
  ImageLimits limits;
};

// Checks the file's size. The source keeps a view of `bytes`.
ImageSource open_source(std::span<const std::byte> bytes, const std::string& what, const ImageLimits& limits);
[[noreturn]] void fail_memory(const std::string& what);
// Runs a decoder. The limits bound what a picture needs, yet a machine can have less: that is an
// Error(kCapacity).
template <typename F>
auto with_memory(const std::string& what, F&& decode) {
  try {
    return decode();
  } catch (const std::bad_alloc&) {
    fail_memory(what);
  }
}

// Throws Error(kInput): "<what> cannot be decoded as <format>: <reason>".
[[noreturn]] void fail_decoding(const ImageSource& source, std::string_view format, std::string_view reason);
// Throws Error(kCapacity) for a picture over limits.max_pixels and Error(kInput) for an empty one.
void check_size(const ImageSource& source, int64_t width, int64_t height);
// Black pixels; the size has been checked.
RgbImage blank_image(int64_t width, int64_t height);

// One colour with coverage `alpha` over white, rounded to nearest as Pillow's paste does.
inline uint8_t over_white(uint8_t value, uint8_t alpha) {
  const int t = 255 * (255 - alpha) + value * alpha + 128;
  return static_cast<uint8_t>(((t >> 8) + t) >> 8);
}
// `count` RGBA pixels to RGB: over white, or with the alpha dropped under kReference.
void flatten_alpha(const uint8_t* rgba, int64_t count, PixelRules rules, uint8_t* rgb);

inline uint32_t load_le16(const uint8_t* p) {
  return static_cast<uint32_t>(p[0] | p[1] << 8);
}
inline uint32_t load_le32(const uint8_t* p) {
  return load_le16(p) | load_le16(p + 2) << 16;
}
inline uint32_t load_be16(const uint8_t* p) {
  return static_cast<uint32_t>(p[0] << 8 | p[1]);
}
inline uint32_t load_be32(const uint8_t* p) {
  return load_be16(p) << 16 | load_be16(p + 2);
}
inline bool starts_with(Bytes bytes, std::string_view text, size_t at = 0) {
  return bytes.size() >= at + text.size() &&
         std::string_view(reinterpret_cast<const char*>(bytes.data()) + at, text.size()) == text;
}

ImageSize jpeg_size(const ImageSource& source);
ImageSize png_size(const ImageSource& source);
ImageSize webp_size(const ImageSource& source);
ImageSize gif_size(const ImageSource& source);
ImageSize bmp_size(const ImageSource& source);

RgbImage decode_jpeg(const ImageSource& source, PixelRules rules);
RgbImage decode_png(const ImageSource& source, PixelRules rules);
RgbImage decode_webp(const ImageSource& source, PixelRules rules);
RgbImage decode_gif(const ImageSource& source, PixelRules rules);
RgbImage decode_bmp(const ImageSource& source, PixelRules rules);

// The TIFF structure that holds the EXIF tags, found by walking the container; empty when there is none.
Bytes jpeg_exif(Bytes bytes);
Bytes png_exif(Bytes bytes);
Bytes webp_exif(Bytes bytes);

}  // namespace vireo
