// GIF by giflib, frame by frame rather than by DGifSlurp, so that limits hold before every allocation. Frames
// are painted on a canvas with the disposal rules that browsers follow. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "files/image_codecs.h"
#include "vireo/error.h"

namespace vireo {
namespace {

// Browsers slow down delays below 20 ms to 100 ms.
constexpr int kShortestDelay = 2;  // hundredths of a second
constexpr int kSlowedDelay = 10;

struct Reader {
  GifFileType* file = nullptr;
  Bytes rest;

  Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() {
    int ignored = 0;
    if (file) DGifCloseFile(file, &ignored);
  }
};

int read_bytes(GifFileType* file, GifByteType* to, int count) {
  auto* reader = static_cast<Reader*>(file->UserData);
  const size_t n = std::min(reader->rest.size(), static_cast<size_t>(std::max(count, 0)));
  if (n > 0) std::memcpy(to, reader->rest.data(), n);
  reader->rest = reader->rest.subspan(n);
  return static_cast<int>(n);
}

[[noreturn]] void fail(const ImageSource& source, const Reader& reader) {
  const char* reason = reader.file ? GifErrorString(reader.file->Error) : nullptr;
  fail_decoding(source, "GIF", reason ? reason : "the data are damaged or end early");
}

struct Frame {
  int left = 0, top = 0, width = 0, height = 0;
  int disposal = DISPOSAL_UNSPECIFIED;
  int transparent = NO_TRANSPARENT_COLOR;
  int delay = 0;  // hundredths of a second
  const ColorMapObject* colors = nullptr;
  std::vector<uint8_t> indices;
};

struct Rgb {
  uint8_t r, g, b;
};

// An index outside the palette is black; without any palette the indices are grey levels.
Rgb color_of(const Frame& frame, int index) {
  const auto gray = static_cast<uint8_t>(index);
  if (!frame.colors) return {gray, gray, gray};
  if (index >= frame.colors->ColorCount) return {0, 0, 0};
  const GifColorType& c = frame.colors->Colors[index];
  return {c.Red, c.Green, c.Blue};
}

void read_extension(Reader& reader, const ImageSource& source, Frame& frame) {
  int code = 0;
  GifByteType* block = nullptr;
  if (DGifGetExtension(reader.file, &code, &block) == GIF_ERROR) fail(source, reader);
  GraphicsControlBlock control;
  if (code == GRAPHICS_EXT_FUNC_CODE && block && DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK) {
    frame.disposal = control.DisposalMode;
    frame.transparent = control.TransparentColor;
    frame.delay = control.DelayTime;
  }
  while (block)
    if (DGifGetExtensionNext(reader.file, &block) == GIF_ERROR) fail(source, reader);
}

void read_descriptor(Reader& reader, const ImageSource& source, Frame& frame) {
  if (DGifGetImageDesc(reader.file) == GIF_ERROR) fail(source, reader);
  const GifImageDesc& d = reader.file->Image;
  check_size(source, d.Width, d.Height);
  frame.left = d.Left;
  frame.top = d.Top;
  frame.width = d.Width;
  frame.height = d.Height;
  frame.colors = d.ColorMap ? d.ColorMap : reader.file->SColorMap;
}

// Up to the next frame's descriptor; false at the end of the file's frames.
bool next_frame(Reader& reader, const ImageSource& source, Frame& frame) {
  frame = {};
  while (true) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(reader.file, &type) == GIF_ERROR) fail(source, reader);
    if (type == TERMINATE_RECORD_TYPE) return false;
    if (type == EXTENSION_RECORD_TYPE) read_extension(reader, source, frame);
    if (type != IMAGE_DESC_RECORD_TYPE) continue;
    read_descriptor(reader, source, frame);
    return true;
  }
}

void read_row(Reader& reader, const ImageSource& source, Frame& frame, int y) {
  uint8_t* row = frame.indices.data() + size_t{1} * y * frame.width;
  if (DGifGetLine(reader.file, row, frame.width) == GIF_ERROR) fail(source, reader);
}

void read_indices(Reader& reader, const ImageSource& source, Frame& frame) {
  frame.indices.resize(static_cast<size_t>(frame.width) * frame.height);
  constexpr std::pair<int, int> kInterlaced[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
  constexpr std::pair<int, int> kPlain[] = {{0, 1}};
  const bool interlaced = reader.file->Image.Interlace;
  const std::span<const std::pair<int, int>> passes =
      interlaced ? std::span<const std::pair<int, int>>(kInterlaced) : kPlain;
  for (const auto& [first, step] : passes)
    for (int y = first; y < frame.height; y += step) read_row(reader, source, frame, y);
}

// Opens the file up to its first frame. The canvas is the logical screen, grown where the first frame is
// larger.
ImageSize open(Reader& reader, const ImageSource& source, Frame& frame) {
  int error = 0;
  reader.rest = source.bytes;
  reader.file = DGifOpen(&reader, read_bytes, &error);
  if (!reader.file) fail(source, reader);
  if (!next_frame(reader, source, frame)) fail_decoding(source, "GIF", "it holds no frame");
  const ImageSize canvas{std::max<int>(reader.file->SWidth, frame.left + frame.width),
                         std::max<int>(reader.file->SHeight, frame.top + frame.height)};
  check_size(source, canvas.width, canvas.height);
  return canvas;
}

void fill(RgbImage& canvas, const Frame& area, Rgb color) {
  const int right = std::min(area.left + area.width, canvas.width);
  for (int y = area.top; y < std::min(area.top + area.height, canvas.height); ++y)
    for (int x = area.left; x < right; ++x)
      std::memcpy(&canvas.pixels[(size_t{1} * y * canvas.width + x) * 3], &color, 3);
}

// Transparent pixels leave what is there.
void paint(RgbImage& canvas, const Frame& frame) {
  const int width = std::min(frame.width, canvas.width - frame.left);
  const int height = std::min(frame.height, canvas.height - frame.top);
  for (int y = 0; y < height; ++y) {
    const uint8_t* indices = frame.indices.data() + size_t{1} * y * frame.width;
    uint8_t* rgb = canvas.pixels.data() + (size_t{1} * (frame.top + y) * canvas.width + frame.left) * 3;
    for (int x = 0; x < width; ++x, rgb += 3) {
      if (indices[x] == frame.transparent) continue;
      const Rgb color = color_of(frame, indices[x]);
      std::memcpy(rgb, &color, 3);
    }
  }
}

constexpr Rgb kWhite{255, 255, 255};

// The reference takes the palette's colour where a frame is transparent or absent (index 0 without
// transparency).
Rgb background(const Frame& frame, PixelRules rules) {
  return rules == PixelRules::kReference ? color_of(frame, std::max(frame.transparent, 0)) : kWhite;
}

RgbImage blank_canvas(ImageSize size, Rgb color) {
  RgbImage canvas = blank_image(size.width, size.height);
  fill(canvas, {.width = size.width, .height = size.height}, color);
  return canvas;
}

void check_clip(const ImageSource& source, ImageSize canvas, size_t frames) {
  const auto n = static_cast<int64_t>(frames);
  if (n <= source.limits.max_frames && n <= source.limits.max_clip_pixels / (int64_t{canvas.width} * canvas.height))
    return;
  throw Error(
      ErrorKind::kCapacity,
      fmt::format("{} has at least {} frames of {} x {} pixels, over the limits of {} frames and {} pixels in all; "
                  "shorten it or raise the limit",
                  source.what, n, canvas.width, canvas.height, source.limits.max_frames,
                  source.limits.max_clip_pixels));
}

int shown_delay(const Frame& frame) {
  return frame.delay < kShortestDelay ? kSlowedDelay : frame.delay;
}

// Paints a frame, keeps the result, and leaves the canvas as the frame's disposal wants it.
void show(RgbImage& canvas, const Frame& frame, std::vector<RgbImage>& shown) {
  RgbImage before;
  if (frame.disposal == DISPOSE_PREVIOUS) before = canvas;
  paint(canvas, frame);
  shown.push_back(canvas);
  if (frame.disposal == DISPOSE_PREVIOUS) canvas = std::move(before);
  if (frame.disposal == DISPOSE_BACKGROUND) fill(canvas, frame, kWhite);
}

Clip decode_clip(const ImageSource& source) {
  Reader reader;
  Frame frame;
  const ImageSize size = open(reader, source, frame);
  RgbImage canvas = blank_canvas(size, kWhite);
  Clip clip;
  int64_t delays = 0;
  do {
    check_clip(source, size, clip.frames.size() + 1);
    read_indices(reader, source, frame);
    show(canvas, frame, clip.frames);
    delays += shown_delay(frame);
  } while (next_frame(reader, source, frame));
  clip.fps = 100.0 * static_cast<double>(clip.frames.size()) / static_cast<double>(delays);
  return clip;
}

}  // namespace

ImageSize gif_size(const ImageSource& source) {
  Reader reader;
  Frame frame;
  return open(reader, source, frame);
}

RgbImage decode_gif(const ImageSource& source, PixelRules rules) {
  Reader reader;
  Frame frame;
  const ImageSize size = open(reader, source, frame);
  RgbImage canvas = blank_canvas(size, background(frame, rules));
  read_indices(reader, source, frame);
  paint(canvas, frame);
  return canvas;
}

Clip decode_gif_clip(std::span<const std::byte> bytes, const std::string& what, const ImageLimits& limits) {
  return with_memory(what, [&] {
    const ImageSource source = open_source(bytes, what, limits);
    if (sniff_image(bytes) != "GIF")
      throw Error(ErrorKind::kInput, fmt::format("{} is not a GIF; clips are read from animated GIFs", what));
    return decode_clip(source);
  });
}

}  // namespace vireo
