// The table of formats and what is common to them: recognising, limits, orientation, and the sentences of
// refusal. SPDX-License-Identifier: Apache-2.0
#include "files/image_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "files/exif.h"
#include "files/image_codecs.h"
#include "vireo/error.h"

namespace vireo {
namespace {

using std::string_view_literals::operator""sv;

Bytes no_exif(Bytes) {
  return {};
}

bool is_png(Bytes b) {
  return starts_with(b, "\x89PNG\r\n\x1a\n");
}
bool is_jpeg(Bytes b) {
  return starts_with(b, "\xff\xd8\xff");
}
bool is_webp(Bytes b) {
  return starts_with(b, "RIFF") && starts_with(b, "WEBP", 8);
}
bool is_gif(Bytes b) {
  return starts_with(b, "GIF87a") || starts_with(b, "GIF89a");
}

// "BM" alone could open a text, so the length of the next header must be a known one too.
bool is_bmp(Bytes b) {
  if (!starts_with(b, "BM") || b.size() < 18) return false;
  constexpr uint32_t kHeaderSizes[] = {12, 16, 40, 52, 56, 64, 108, 124};
  return std::ranges::count(kHeaderSizes, load_le32(&b[14])) > 0;
}

struct Format {
  const char* name;
  bool (*matches)(Bytes);
  ImageSize (*size)(const ImageSource&);
  RgbImage (*decode)(const ImageSource&, PixelRules);
  Bytes (*exif)(Bytes);
};

constexpr Format kFormats[] = {
    {"PNG", is_png, png_size, decode_png, png_exif},      {"JPEG", is_jpeg, jpeg_size, decode_jpeg, jpeg_exif},
    {"WebP", is_webp, webp_size, decode_webp, webp_exif}, {"GIF", is_gif, gif_size, decode_gif, no_exif},
    {"BMP", is_bmp, bmp_size, decode_bmp, no_exif},
};

const Format* find_format(Bytes bytes) {
  for (const Format& format : kFormats)
    if (format.matches(bytes)) return &format;
  return nullptr;
}

struct Signature {
  size_t at;
  std::string_view text;
  const char* name;
};

constexpr Signature kOtherFormats[] = {
    {4, "ftypavif"sv, "an AVIF picture"},
    {4, "ftypavis"sv, "an AVIF picture"},
    {4, "ftypheic"sv, "a HEIC picture"},
    {4, "ftypheix"sv, "a HEIC picture"},
    {4, "ftyphevc"sv, "a HEIC picture"},
    {4, "ftypheim"sv, "a HEIC picture"},
    {4, "ftypmif1"sv, "a HEIF picture"},
    {4, "ftypmsf1"sv, "a HEIF picture"},
    {4, "ftyp"sv, "a video (MP4)"},
    {0, "\x1a\x45\xdf\xa3"sv, "a video (Matroska or WebM)"},
    {0, "II*\0"sv, "a TIFF picture"},
    {0, "MM\0*"sv, "a TIFF picture"},
    {0, "II+\0"sv, "a TIFF picture"},
    {0, "MM\0+"sv, "a TIFF picture"},
    {0, "\xff\x0a"sv, "a JPEG XL picture"},
    {0, "\0\0\0\x0cJXL "sv, "a JPEG XL picture"},
    {0, "\0\0\0\x0cjP  "sv, "a JPEG 2000 picture"},
    {0, "\xff\x4f\xff\x51"sv, "a JPEG 2000 picture"},
    {0, "8BPS"sv, "a Photoshop document"},
    {0, "\0\0\1\0"sv, "an icon (ICO)"},
    {0, "%PDF"sv, "a PDF document"},
    {0, "PK\3\4"sv, "a ZIP archive"},
    {0, "\x1f\x8b"sv, "a gzip file"},
    {0, "version https://git-lfs"sv, "a Git LFS pointer; the picture itself was not downloaded"},
};

constexpr size_t kTextProbe = 1024;

std::string_view text_probe(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kTextProbe)};
}

bool is_text(std::string_view probe) {
  return std::ranges::none_of(probe, [](char c) {
    const auto u = static_cast<unsigned char>(c);
    return u == 0x7f || (u < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\f');
  });
}

const char* text_kind(std::string_view probe) {
  if (probe.find("<svg") != probe.npos) return "an SVG drawing";
  if (probe.find("<html") != probe.npos || probe.find("<!DOCTYPE html") != probe.npos) return "an HTML page";
  return "text";
}

std::string describe_unknown(Bytes bytes) {
  if (bytes.empty()) return "empty (0 bytes)";
  for (const Signature& s : kOtherFormats)
    if (starts_with(bytes, s.text, s.at)) return s.name;
  if (is_text(text_probe(bytes))) return text_kind(text_probe(bytes));
  return "of an unknown format";
}

Bytes as_bytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

const Format& format_of(const ImageSource& source) {
  if (const Format* format = find_format(source.bytes)) return *format;
  throw Error(ErrorKind::kInput,
              fmt::format("{} is {}; pictures are read as PNG, JPEG, WebP, GIF or BMP, so convert it to one of these",
                          source.what, describe_unknown(source.bytes)));
}

}  // namespace

ImageSource open_source(std::span<const std::byte> bytes, const std::string& what, const ImageLimits& limits) {
  if (bytes.size() > limits.max_bytes)
    throw Error(ErrorKind::kCapacity,
                fmt::format("{} has {} bytes, over the limit of {}; use a smaller file or raise the limit", what,
                            bytes.size(), limits.max_bytes));
  return {as_bytes(bytes), what, limits};
}

void fail_memory(const std::string& what) {
  throw Error(ErrorKind::kCapacity, fmt::format("{} needs more memory than there is; use a smaller picture", what));
}

void fail_decoding(const ImageSource& source, std::string_view format, std::string_view reason) {
  throw Error(ErrorKind::kInput, fmt::format("{} cannot be decoded as {}: {}", source.what, format, reason));
}

void check_size(const ImageSource& source, int64_t width, int64_t height) {
  if (width <= 0 || height <= 0)
    throw Error(ErrorKind::kInput, fmt::format("{} has no pixels ({} x {})", source.what, width, height));
  if (width > source.limits.max_pixels / height)
    throw Error(ErrorKind::kCapacity,
                fmt::format("{} is {} x {} pixels, over the limit of {} pixels; make it smaller or raise the limit",
                            source.what, width, height, source.limits.max_pixels));
}

RgbImage blank_image(int64_t width, int64_t height) {
  return {static_cast<int>(width), static_cast<int>(height),
          std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
}

void flatten_alpha(const uint8_t* rgba, int64_t count, PixelRules rules, uint8_t* rgb) {
  for (int64_t i = 0; i < count; ++i, rgba += 4, rgb += 3)
    for (int c = 0; c < 3; ++c) rgb[c] = rules == PixelRules::kReference ? rgba[c] : over_white(rgba[c], rgba[3]);
}

std::string sniff_image(std::span<const std::byte> bytes) {
  const Format* format = find_format(as_bytes(bytes));
  return format ? format->name : "";
}

RgbImage decode_image(std::span<const std::byte> bytes, const std::string& what, PixelRules rules,
                      const ImageLimits& limits) {
  return with_memory(what, [&] {
    const ImageSource source = open_source(bytes, what, limits);
    const Format& format = format_of(source);
    return apply_orientation(format.decode(source, rules), exif_orientation(format.exif(source.bytes)));
  });
}

ImageSize image_size(std::span<const std::byte> bytes, const std::string& what, const ImageLimits& limits) {
  return with_memory(what, [&] {
    const ImageSource source = open_source(bytes, what, limits);
    const Format& format = format_of(source);
    return apply_orientation(format.size(source), exif_orientation(format.exif(source.bytes)));
  });
}

}  // namespace vireo
