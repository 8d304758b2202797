// PNG by libpng's low-level interface, which leaves gamma and alpha alone, as Pillow does. libpng reports
// errors by a jump: every call into it runs under `guarded`, in frames that own nothing.
// SPDX-License-Identifier: Apache-2.0
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "files/image_codecs.h"

namespace vireo {
namespace {

constexpr size_t kSignatureBytes = 8;
constexpr size_t kChunkFrame = 12;  // length, name and checksum of a chunk

struct Reader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  Bytes rest;
  std::jmp_buf escape;
  char reason[128] = "out of memory";

  Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() {
    if (png) png_destroy_read_struct(&png, &info, nullptr);
  }
};

[[noreturn]] void leave(png_structp png, png_const_charp reason) {
  auto* reader = static_cast<Reader*>(png_get_error_ptr(png));
  std::snprintf(reader->reason, sizeof(reader->reason), "%s", reason);
  std::longjmp(reader->escape, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto* reader = static_cast<Reader*>(png_get_io_ptr(png));
  if (count > reader->rest.size()) png_error(png, "the data end early");
  std::memcpy(to, reader->rest.data(), count);
  reader->rest = reader->rest.subspan(count);
}

// False when libpng gave up; reader.reason then says why.
template <typename F>
bool guarded(Reader& reader, F&& call) {
  if (setjmp(reader.escape)) return false;
  call();
  return true;
}

// Profiles, texts and the like may hold compressed data and say nothing about the pixels.
void skip_side_chunks(png_structp png) {
  static constexpr png_byte kNames[] = "iCCP\0iTXt\0tEXt\0zTXt\0sPLT\0hIST\0eXIf";
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, kNames, sizeof(kNames) / 5);
}

void read_header(Reader& reader) {
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, leave, ignore_warning);
  if (!reader.png) std::longjmp(reader.escape, 1);
  reader.info = png_create_info_struct(reader.png);
  if (!reader.info) std::longjmp(reader.escape, 1);
  png_set_read_fn(reader.png, &reader, read_bytes);
  png_set_user_limits(reader.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  skip_side_chunks(reader.png);
  png_read_info(reader.png, reader.info);
}

// The header chunk stands first, so its size can be judged before anything is set up for it.
void check_header(const ImageSource& source) {
  const Bytes b = source.bytes;
  if (b.size() < kSignatureBytes + 16 || !starts_with(b, "IHDR", kSignatureBytes + 4))
    fail_decoding(source, "PNG", "its header is missing");
  check_size(source, load_be32(&b[16]), load_be32(&b[20]));
}

void open(Reader& reader, const ImageSource& source) {
  check_header(source);
  reader.rest = source.bytes;
  if (!guarded(reader, [&] { read_header(reader); })) fail_decoding(source, "PNG", reader.reason);
}

bool is_gray16(const Reader& reader) {
  return png_get_bit_depth(reader.png, reader.info) == 16 &&
         png_get_color_type(reader.png, reader.info) == PNG_COLOR_TYPE_GRAY;
}

// Asks for 8-bit RGB or RGBA; for 16-bit grey under kReference for the 16-bit samples.
void set_output(Reader& reader, PixelRules rules) {
  png_set_expand(reader.png);
  if (rules == PixelRules::kReference) png_set_strip_alpha(reader.png);
  if (rules != PixelRules::kReference || !is_gray16(reader)) {
    png_set_strip_16(reader.png);
    png_set_gray_to_rgb(reader.png);
  }
  png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
}

void read_image(Reader& reader, png_bytep* rows) {
  png_read_image(reader.png, rows);
  png_read_end(reader.png, nullptr);
}

void saturate_gray16(const uint8_t* samples, int64_t count, uint8_t* rgb) {
  for (int64_t i = 0; i < count; ++i, rgb += 3)
    std::fill_n(rgb, 3, static_cast<uint8_t>(std::min<uint32_t>(load_be16(samples + 2 * i), 255)));
}

// The raw rows to RGB, where libpng could not write RGB itself.
void convert(const Reader& reader, const std::vector<uint8_t>& raw, PixelRules rules, RgbImage& image) {
  const int64_t count = int64_t{image.width} * image.height;
  if (png_get_bit_depth(reader.png, reader.info) == 16) {
    saturate_gray16(raw.data(), count, image.pixels.data());
  } else {
    flatten_alpha(raw.data(), count, rules, image.pixels.data());
  }
}

}  // namespace

ImageSize png_size(const ImageSource& source) {
  Reader reader;
  open(reader, source);
  return {static_cast<int>(png_get_image_width(reader.png, reader.info)),
          static_cast<int>(png_get_image_height(reader.png, reader.info))};
}

RgbImage decode_png(const ImageSource& source, PixelRules rules) {
  Reader reader;
  open(reader, source);
  if (!guarded(reader, [&] { set_output(reader, rules); })) fail_decoding(source, "PNG", reader.reason);

  RgbImage image =
      blank_image(png_get_image_width(reader.png, reader.info), png_get_image_height(reader.png, reader.info));
  const size_t row_bytes = png_get_rowbytes(reader.png, reader.info);
  const bool direct = png_get_channels(reader.png, reader.info) == 3;
  std::vector<uint8_t> raw(direct ? 0 : row_bytes * image.height);
  std::vector<png_bytep> rows(image.height);
  for (int y = 0; y < image.height; ++y) rows[y] = (direct ? image.pixels.data() : raw.data()) + y * row_bytes;

  if (!guarded(reader, [&] { read_image(reader, rows.data()); })) fail_decoding(source, "PNG", reader.reason);
  if (!direct) convert(reader, raw, rules, image);
  return image;
}

Bytes png_exif(Bytes bytes) {
  size_t at = kSignatureBytes;
  while (at + kChunkFrame <= bytes.size()) {
    const size_t length = load_be32(&bytes[at]);
    if (length > bytes.size() - at - kChunkFrame) break;
    if (starts_with(bytes, "eXIf", at + 4)) return bytes.subspan(at + 8, length);
    at += kChunkFrame + length;
  }
  return {};
}

}  // namespace vireo
