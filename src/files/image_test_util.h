// For tests of the picture decoders: stored pictures, small pictures made on the spot, and short names for
// the calls. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <png.h>

#include <filesystem>
#include <string>
#include <vector>

#include "files/image_file.h"
#include "files/json.h"

namespace vireo {

using Pixels = std::vector<uint8_t>;

inline std::string stored_picture(const std::string& file) {
  return read_file(std::filesystem::path(VIREO_TEST_DATA) / "goldens" / "preprocess" / file, 16u << 20);
}

inline std::span<const std::byte> view(const std::string& bytes) {
  return std::as_bytes(std::span(bytes));
}

inline RgbImage decode(const std::string& bytes, PixelRules rules = PixelRules::kDefault,
                       const ImageLimits& limits = {}) {
  return decode_image(view(bytes), "x.img", rules, limits);
}

inline std::string le16(uint32_t v) {
  return {static_cast<char>(v & 0xff), static_cast<char>(v >> 8 & 0xff)};
}
inline std::string le32(uint32_t v) {
  return le16(v & 0xffff) + le16(v >> 16);
}
inline std::string be16(uint32_t v) {
  return {static_cast<char>(v >> 8 & 0xff), static_cast<char>(v & 0xff)};
}
inline std::string be32(uint32_t v) {
  return be16(v >> 16) + be16(v & 0xffff);
}

// A TIFF structure whose one tag is the orientation.
inline std::string exif_tiff(int orientation) {
  return std::string("MM\0*", 4) + be32(8) + be16(1) + be16(0x0112) + be16(3) + be32(1) + be16(orientation) + be16(0) +
         be32(0);
}

struct PngKind {
  int width, height;
  int bit_depth;
  int color_type;
  int interlace = PNG_INTERLACE_NONE;
  Pixels palette = {};        // R, G, B of each entry
  Pixels palette_alpha = {};  // tRNS of a palette
  int key = -1;               // tRNS of grey: the transparent sample
};

// `raw` holds the rows as PNG stores them, without filter bytes.
inline std::string make_png(const PngKind& kind, Pixels raw) {
  std::string bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &bytes,
      [](png_structp p, png_bytep data, size_t n) {
        static_cast<std::string*>(png_get_io_ptr(p))->append(reinterpret_cast<char*>(data), n);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, kind.width, kind.height, kind.bit_depth, kind.color_type, kind.interlace,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!kind.palette.empty())
    png_set_PLTE(png, info, reinterpret_cast<png_const_colorp>(kind.palette.data()),
                 static_cast<int>(kind.palette.size() / 3));
  png_color_16 key{};
  key.gray = static_cast<png_uint_16>(kind.key);
  if (!kind.palette_alpha.empty())
    png_set_tRNS(png, info, kind.palette_alpha.data(), static_cast<int>(kind.palette_alpha.size()), nullptr);
  if (kind.key >= 0) png_set_tRNS(png, info, nullptr, 0, &key);
  png_write_info(png, info);
  std::vector<png_bytep> rows;
  for (int y = 0; y < kind.height; ++y) rows.push_back(raw.data() + y * png_get_rowbytes(png, info));
  png_write_image(png, rows.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

}  // namespace vireo
