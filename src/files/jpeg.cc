// JPEG by libjpeg with its defaults (accurate integer DCT, fancy chroma upsampling), which are those of the
// reference. libjpeg reports errors by a jump: every call into it runs under `guarded`, in frames that own
// nothing. SPDX-License-Identifier: Apache-2.0
#include <csetjmp>
#include <cstdio>

// jpeglib.h needs FILE and size_t declared before it.
#include <jpeglib.h>
// jerror.h needs jpeglib.h before it.
#include <jerror.h>

#include "files/image_codecs.h"

namespace vireo {
namespace {

// A progressive file may repeat scans for next to no bytes, and each costs a pass over the whole picture;
// real ones have about ten.
constexpr int kMaxScans = 64;

struct Reader {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf escape;
  char reason[JMSG_LENGTH_MAX] = "";

  Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { jpeg_destroy_decompress(&info); }
};

[[noreturn]] void leave(j_common_ptr info) {
  auto* reader = static_cast<Reader*>(info->client_data);
  info->err->format_message(info, reader->reason);
  std::longjmp(reader->escape, 1);
}

// Warnings after which the pixels are not those of the file.
bool is_damage(int code) {
  return code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE || code == JWRN_MUST_RESYNC ||
         code == JWRN_ARITH_BAD_CODE;
}

void on_message(j_common_ptr info, int level) {
  if (level < 0 && is_damage(info->err->msg_code)) leave(info);
}

void print_nothing(j_common_ptr) {}

void limit_scans(j_common_ptr info) {
  auto* reader = static_cast<Reader*>(info->client_data);
  if (reader->info.input_scan_number <= kMaxScans) return;
  std::snprintf(reader->reason, sizeof(reader->reason), "more than %d scans", kMaxScans);
  std::longjmp(reader->escape, 1);
}

// False when libjpeg gave up; reader.reason then says why.
template <typename F>
bool guarded(Reader& reader, F&& call) {
  if (setjmp(reader.escape)) return false;
  call();
  return true;
}

void start(Reader& reader, Bytes bytes) {
  reader.info.err = jpeg_std_error(&reader.errors);
  reader.errors.error_exit = leave;
  reader.errors.emit_message = on_message;
  reader.errors.output_message = print_nothing;
  reader.info.client_data = &reader;
  jpeg_create_decompress(&reader.info);
  reader.progress.progress_monitor = limit_scans;
  reader.info.progress = &reader.progress;
  jpeg_mem_src(&reader.info, bytes.data(), bytes.size());
  jpeg_read_header(&reader.info, TRUE);
}

void open(Reader& reader, const ImageSource& source) {
  if (!guarded(reader, [&] { start(reader, source.bytes); })) fail_decoding(source, "JPEG", reader.reason);
  check_size(source, reader.info.image_width, reader.info.image_height);
}

bool is_cmyk(const jpeg_decompress_struct& info) {
  return info.num_components == 4;
}

// CMYK as stored by everybody, that is inverted: c * k / 255, rounded as Pillow does.
void cmyk_to_rgb(const uint8_t* cmyk, int width, uint8_t* rgb) {
  for (int x = 0; x < width; ++x, cmyk += 4, rgb += 3)
    for (int c = 0; c < 3; ++c) {
      const int t = (255 - cmyk[c]) * cmyk[3] + 128;
      rgb[c] = static_cast<uint8_t>(cmyk[3] - (((t >> 8) + t) >> 8));
    }
}

// `line` holds one row of four components where the file has four.
void read_rows(jpeg_decompress_struct& info, RgbImage& image, uint8_t* line) {
  info.out_color_space = is_cmyk(info) ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&info);
  while (info.output_scanline < info.output_height) {
    uint8_t* rgb = image.pixels.data() + size_t{info.output_scanline} * image.width * 3;
    JSAMPROW row = is_cmyk(info) ? line : rgb;
    jpeg_read_scanlines(&info, &row, 1);
    if (is_cmyk(info)) cmyk_to_rgb(line, image.width, rgb);
  }
  jpeg_finish_decompress(&info);
}

}  // namespace

ImageSize jpeg_size(const ImageSource& source) {
  Reader reader;
  open(reader, source);
  return {static_cast<int>(reader.info.image_width), static_cast<int>(reader.info.image_height)};
}

RgbImage decode_jpeg(const ImageSource& source, PixelRules) {
  Reader reader;
  open(reader, source);
  RgbImage image = blank_image(reader.info.image_width, reader.info.image_height);
  std::vector<uint8_t> line(is_cmyk(reader.info) ? size_t{4} * reader.info.image_width : 0);
  if (!guarded(reader, [&] { read_rows(reader.info, image, line.data()); }))
    fail_decoding(source, "JPEG", reader.reason);
  return image;
}

Bytes jpeg_exif(Bytes bytes) {
  constexpr uint8_t kApp1 = 0xe1, kStartOfScan = 0xda;
  constexpr std::string_view kName("Exif\0\0", 6);
  size_t at = 2;
  while (at + 4 <= bytes.size() && bytes[at] == 0xff && bytes[at + 1] != kStartOfScan) {
    if (bytes[at + 1] == 0xff) {  // padding before a marker
      ++at;
      continue;
    }
    const size_t length = load_be16(&bytes[at + 2]);
    if (length < 2 || length > bytes.size() - at - 2) break;
    const Bytes body = bytes.subspan(at + 4, length - 2);
    if (bytes[at + 1] == kApp1 && starts_with(body, kName)) return body.subspan(kName.size());
    at += 2 + length;
  }
  return {};
}

}  // namespace vireo
