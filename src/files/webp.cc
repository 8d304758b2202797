// WebP by libwebp: lossy, lossless, with alpha; of an animation the first frame as the canvas shows it.
// SPDX-License-Identifier: Apache-2.0
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "files/image_codecs.h"

namespace vireo {
namespace {

struct AnimationDeleter {
  void operator()(WebPAnimDecoder* decoder) const { WebPAnimDecoderDelete(decoder); }
};

const char* reason_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "out of memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "a feature that is not supported";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "the data end early";
    default:
      return "the data are damaged";
  }
}

WebPBitstreamFeatures read_header(const ImageSource& source) {
  WebPBitstreamFeatures features{};
  const VP8StatusCode status = WebPGetFeatures(source.bytes.data(), source.bytes.size(), &features);
  if (status != VP8_STATUS_OK) fail_decoding(source, "WebP", reason_of(status));
  check_size(source, features.width, features.height);
  return features;
}

// Pixels of `mode` into `out`, whose rows are dense.
void decode_still(const ImageSource& source, WEBP_CSP_MODE mode, int stride, std::vector<uint8_t>& out) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) fail_decoding(source, "WebP", "libwebp is of another version");
  config.output.colorspace = mode;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {out.data(), stride, out.size()};
  const VP8StatusCode status = WebPDecode(source.bytes.data(), source.bytes.size(), &config);
  if (status != VP8_STATUS_OK) fail_decoding(source, "WebP", reason_of(status));
}

void decode_first_frame(const ImageSource& source, PixelRules rules, RgbImage& image) {
  WebPAnimDecoderOptions options;
  if (!WebPAnimDecoderOptionsInit(&options)) fail_decoding(source, "WebP", "libwebp is of another version");
  const WebPData data{source.bytes.data(), source.bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, AnimationDeleter> decoder(WebPAnimDecoderNew(&data, &options));
  WebPAnimInfo info{};
  uint8_t* canvas = nullptr;
  int milliseconds = 0;
  if (!decoder || !WebPAnimDecoderGetInfo(decoder.get(), &info) ||
      info.canvas_width != static_cast<uint32_t>(image.width) ||
      info.canvas_height != static_cast<uint32_t>(image.height) ||
      !WebPAnimDecoderGetNext(decoder.get(), &canvas, &milliseconds))
    fail_decoding(source, "WebP", "the animation is damaged or ends early");
  flatten_alpha(canvas, int64_t{image.width} * image.height, rules, image.pixels.data());
}

}  // namespace

ImageSize webp_size(const ImageSource& source) {
  const WebPBitstreamFeatures features = read_header(source);
  return {features.width, features.height};
}

RgbImage decode_webp(const ImageSource& source, PixelRules rules) {
  const WebPBitstreamFeatures features = read_header(source);
  RgbImage image = blank_image(features.width, features.height);
  if (features.has_animation) {
    decode_first_frame(source, rules, image);
  } else if (!features.has_alpha || rules == PixelRules::kReference) {
    decode_still(source, MODE_RGB, 3 * image.width, image.pixels);
  } else {
    const int64_t count = int64_t{image.width} * image.height;
    std::vector<uint8_t> rgba(static_cast<size_t>(4 * count));
    decode_still(source, MODE_RGBA, 4 * image.width, rgba);
    flatten_alpha(rgba.data(), count, rules, image.pixels.data());
  }
  return image;
}

Bytes webp_exif(Bytes bytes) {
  constexpr size_t kFirstChunk = 12;
  constexpr std::string_view kName("Exif\0\0", 6);
  size_t at = kFirstChunk;
  while (at + 8 <= bytes.size()) {
    const size_t length = load_le32(&bytes[at + 4]);
    if (length > bytes.size() - at - 8) break;
    const Bytes body = bytes.subspan(at + 8, length);
    if (starts_with(bytes, "EXIF", at)) return starts_with(body, kName) ? body.subspan(kName.size()) : body;
    at += 8 + length + length % 2;
  }
  return {};
}

}  // namespace vireo
