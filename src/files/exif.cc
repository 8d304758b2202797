// A bounds-checked reader of one TIFF directory, and the eight ways to walk a picture.
// SPDX-License-Identifier: Apache-2.0
#include "files/exif.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "files/image_codecs.h"

namespace vireo {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;
constexpr size_t kEntryBytes = 12;
constexpr uint32_t kByte = 1, kShort = 3, kLong = 4;

// Numbers of a TIFF structure in its byte order; zero beyond its end.
struct TiffReader {
  Bytes bytes;
  bool big_endian = false;

  uint32_t u16(size_t at) const {
    if (bytes.size() < 2 || at > bytes.size() - 2) return 0;
    return big_endian ? load_be16(&bytes[at]) : load_le16(&bytes[at]);
  }
  uint32_t u32(size_t at) const {
    if (bytes.size() < 4 || at > bytes.size() - 4) return 0;
    return big_endian ? load_be32(&bytes[at]) : load_le32(&bytes[at]);
  }
  uint32_t value(size_t entry) const {
    switch (u16(entry + 2)) {
      case kByte:
        return entry + 8 < bytes.size() ? bytes[entry + 8] : 0;
      case kShort:
        return u16(entry + 8);
      case kLong:
        return u32(entry + 8);
      default:
        return 0;
    }
  }
};

bool swaps_sides(int orientation) {
  return orientation >= 5;
}
bool mirrors_x(int o) {
  return o == 2 || o == 3 || o == 7 || o == 8;
}
bool mirrors_y(int o) {
  return o == 3 || o == 4 || o == 6 || o == 7;
}

}  // namespace

int exif_orientation(std::span<const uint8_t> tiff) {
  const bool big = starts_with(tiff, std::string_view("MM\0*", 4));
  if (!big && !starts_with(tiff, std::string_view("II*\0", 4))) return 1;
  const TiffReader reader{tiff, big};
  const size_t directory = reader.u32(4);
  const size_t entries = reader.u16(directory);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (reader.u16(entry) != kOrientationTag) continue;
    const uint32_t value = reader.value(entry);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

ImageSize apply_orientation(ImageSize size, int orientation) {
  if (swaps_sides(orientation)) std::swap(size.width, size.height);
  return size;
}

RgbImage apply_orientation(RgbImage image, int orientation) {
  if (orientation <= 1) return image;
  const ptrdiff_t row = ptrdiff_t{3} * image.width;
  ptrdiff_t step_x = mirrors_x(orientation) ? -3 : 3;
  ptrdiff_t step_y = mirrors_y(orientation) ? -row : row;
  ptrdiff_t start = 0;
  if (mirrors_x(orientation)) start += row - 3;
  if (mirrors_y(orientation)) start += row * (image.height - 1);
  if (swaps_sides(orientation)) std::swap(step_x, step_y);

  const ImageSize size = apply_orientation(ImageSize{image.width, image.height}, orientation);
  RgbImage turned = blank_image(size.width, size.height);
  uint8_t* out = turned.pixels.data();
  for (int y = 0; y < size.height; ++y) {
    const ptrdiff_t line = start + y * step_y;
    for (int x = 0; x < size.width; ++x, out += 3) std::memcpy(out, &image.pixels[line + x * step_x], 3);
  }
  return turned;
}

}  // namespace vireo
