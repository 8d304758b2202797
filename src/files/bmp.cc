// BMP by an own reader: uncompressed pictures of 1, 4, 8, 16, 24 and 32 bits per pixel, bottom-up or
// top-down, with palettes and bit masks. Every offset is checked against the file before a pixel is read.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "files/image_codecs.h"

namespace vireo {
namespace {

constexpr size_t kFileHeader = 14;
constexpr uint32_t kCoreHeader = 12, kInfoHeader = 40;
constexpr uint32_t kPlain = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3, kAlphaBitFields = 6;
constexpr size_t kMaskOffset = kFileHeader + kInfoHeader;  // of the masks, in every header that has them

struct Header {
  int64_t width = 0;
  int64_t height = 0;
  bool top_down = false;
  uint32_t bits = 0;
  uint32_t compression = kPlain;
  size_t pixels = 0;   // offset of the first stored row
  size_t palette = 0;  // offset
  size_t colors = 0;
  size_t color_bytes = 4;
  uint32_t masks[4] = {};  // red, green, blue, alpha

  size_t stride() const { return static_cast<size_t>((width * bits + 31) / 32 * 4); }
};

[[noreturn]] void fail(const ImageSource& source, std::string_view reason) {
  fail_decoding(source, "BMP", reason);
}

void need(const ImageSource& source, size_t bytes) {
  if (source.bytes.size() < bytes) fail(source, "the data end early");
}

bool has_masks(const Header& h) {
  return h.compression == kBitFields || h.compression == kAlphaBitFields;
}

void read_core(const uint8_t* p, Header& h) {
  h.width = load_le16(p + 4);
  h.height = load_le16(p + 6);
  h.bits = load_le16(p + 10);
  h.color_bytes = 3;
}

void read_info(const uint8_t* p, Header& h) {
  h.width = static_cast<int32_t>(load_le32(p + 4));
  h.height = static_cast<int32_t>(load_le32(p + 8));
  h.top_down = h.height < 0;
  if (h.top_down) h.height = -h.height;
  h.bits = load_le16(p + 14);
  h.compression = load_le32(p + 16);
  h.colors = load_le32(p + 32);
}

void check_kind(const ImageSource& source, const Header& h) {
  if (h.compression == kRle8 || h.compression == kRle4)
    fail(source, "run-length compression is not supported; save it as PNG or as an uncompressed BMP");
  if (h.compression != kPlain && !has_masks(h))
    fail(source, fmt::format("compression {} is not supported; save it as PNG", h.compression));
  constexpr uint32_t kDepths[] = {1, 4, 8, 16, 24, 32};
  for (uint32_t depth : kDepths)
    if (h.bits == depth) return;
  fail(source, fmt::format("{} bits per pixel are not supported (1, 4, 8, 16, 24 or 32)", h.bits));
}

// Where the file names no masks: 5-5-5 for 16 bits, 8-8-8 for 32.
void default_masks(Header& h) {
  constexpr uint32_t k555[] = {0x7c00, 0x03e0, 0x001f, 0}, k888[] = {0xff0000, 0xff00, 0xff, 0};
  std::memcpy(h.masks, h.bits == 16 ? k555 : k888, sizeof(h.masks));
}

// Info headers are followed by three masks (four with kAlphaBitFields); longer headers contain four.
void read_masks(const ImageSource& source, size_t header_bytes, Header& h) {
  default_masks(h);
  if (!has_masks(h)) return;
  if (h.bits != 16 && h.bits != 32) fail(source, "bit masks need 16 or 32 bits per pixel");
  const bool alpha = header_bytes > 52 || h.compression == kAlphaBitFields;
  const int count = alpha ? 4 : 3;
  need(source, kMaskOffset + 4 * count);
  for (int i = 0; i < count; ++i) h.masks[i] = load_le32(&source.bytes[kMaskOffset + 4 * i]);
  if (header_bytes == kInfoHeader) h.palette += 4 * count;
}

void read_palette_size(const ImageSource& source, Header& h) {
  if (h.bits > 8) return;
  const size_t most = size_t{1} << h.bits;
  if (h.colors == 0 || h.colors > most) h.colors = most;
  need(source, h.palette + h.colors * h.color_bytes);
}

Header read_header(const ImageSource& source) {
  const uint8_t* p = source.bytes.data();
  need(source, kFileHeader + kCoreHeader);
  const uint32_t header_bytes = load_le32(p + kFileHeader);
  need(source, kFileHeader + header_bytes);
  if (header_bytes != kCoreHeader && header_bytes < kInfoHeader) fail(source, "its header is of an unknown kind");
  Header h;
  h.pixels = load_le32(p + 10);
  h.palette = kFileHeader + header_bytes;
  header_bytes == kCoreHeader ? read_core(p + kFileHeader, h) : read_info(p + kFileHeader, h);
  check_size(source, h.width, h.height);
  check_kind(source, h);
  read_masks(source, header_bytes, h);
  read_palette_size(source, h);
  return h;
}

// A masked field scaled to 0..255, rounded down as Pillow does.
uint8_t field(uint32_t value, uint32_t mask) {
  if (mask == 0) return 0;
  const int shift = std::countr_zero(mask);
  return static_cast<uint8_t>(uint64_t{(value & mask) >> shift} * 255 / (mask >> shift));
}

void masked_row(const Header& h, const uint8_t* in, PixelRules rules, uint8_t* rgb) {
  const size_t bytes = h.bits / 8;
  for (int64_t x = 0; x < h.width; ++x, in += bytes, rgb += 3) {
    const uint32_t value = bytes == 2 ? load_le16(in) : load_le32(in);
    uint8_t rgba[4];
    for (int c = 0; c < 4; ++c) rgba[c] = field(value, h.masks[c]);
    if (h.masks[3] == 0) rgba[3] = 255;
    flatten_alpha(rgba, 1, rules, rgb);
  }
}

void bgr_row(const Header& h, const uint8_t* in, uint8_t* rgb) {
  for (int64_t x = 0; x < h.width; ++x, in += 3, rgb += 3) {
    rgb[0] = in[2];
    rgb[1] = in[1];
    rgb[2] = in[0];
  }
}

// Palette entries are B, G, R; an index outside the palette is black.
void palette_row(const Header& h, const uint8_t* in, const uint8_t* palette, uint8_t* rgb) {
  const uint32_t per_byte = 8 / h.bits;
  const uint32_t mask = (1u << h.bits) - 1;
  for (int64_t x = 0; x < h.width; ++x, rgb += 3) {
    const uint32_t shift = 8 - h.bits * (1 + static_cast<uint32_t>(x) % per_byte);
    const uint32_t index = in[x / per_byte] >> shift & mask;
    if (index >= h.colors) continue;
    const uint8_t* color = palette + index * h.color_bytes;
    for (int c = 0; c < 3; ++c) rgb[c] = color[2 - c];
  }
}

void read_row(const ImageSource& source, const Header& h, const uint8_t* in, PixelRules rules, uint8_t* rgb) {
  if (h.bits <= 8) return palette_row(h, in, source.bytes.data() + h.palette, rgb);
  if (h.bits == 24) return bgr_row(h, in, rgb);
  masked_row(h, in, rules, rgb);
}

}  // namespace

ImageSize bmp_size(const ImageSource& source) {
  const Header h = read_header(source);
  return {static_cast<int>(h.width), static_cast<int>(h.height)};
}

RgbImage decode_bmp(const ImageSource& source, PixelRules rules) {
  const Header h = read_header(source);
  need(source, h.pixels + h.stride() * static_cast<size_t>(h.height));
  RgbImage image = blank_image(h.width, h.height);
  const uint8_t* stored = source.bytes.data() + h.pixels;
  for (int64_t y = 0; y < h.height; ++y) {
    const int64_t row = h.top_down ? y : h.height - 1 - y;
    read_row(source, h, stored + y * h.stride(), rules, image.pixels.data() + row * h.width * 3);
  }
  return image;
}

}  // namespace vireo
