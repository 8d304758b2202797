// SPDX-License-Identifier: Apache-2.0
#include "engine/media.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "files/json.h"
#include "files/quote.h"

namespace vireo {
namespace {

constexpr double kMinFps = 0.001, kMaxFps = 1000;
// Of all pictures and frames of a request together, which are held decoded: 3 GB.
constexpr int64_t kMaxRequestPixels = 1'000'000'000;

RgbImage copy_raw(const Picture& p) {
  if (p.width < 1 || p.height < 1 || p.stride < int64_t{p.width} * 3) {
    throw Error(ErrorKind::kInput,
                fmt::format("a raw picture of {}x{} pixels with rows of {} bytes is not possible: rows need "
                            "at least 3 bytes a pixel",
                            p.width, p.height, p.stride));
  }
  RgbImage image{p.width, p.height, {}};
  const size_t row = static_cast<size_t>(p.width) * 3;
  image.pixels.resize(row * static_cast<size_t>(p.height));
  for (int y = 0; y < p.height; ++y)
    std::memcpy(&image.pixels[row * static_cast<size_t>(y)], p.rgb + y * p.stride, row);
  return image;
}

std::vector<std::byte> read_picture(const Picture& p) {
  const ImageLimits limits;
  const std::string text = read_file(p.path, limits.max_bytes);
  const std::byte* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

std::string name_of(const Picture& p, const std::string& fallback) {
  return p.path.empty() ? fallback : path_text(p.path);
}

RgbImage load_picture(const Picture& p, const std::string& name, PixelRules rules) {
  if (p.rgb) return copy_raw(p);
  return decode_image(p.path.empty() ? p.bytes : read_picture(p), name, rules);
}

// Counts the pixels of a request as they are decoded.
class PixelCount {
 public:
  void add(const RgbImage& image, const std::string& name) {
    pixels_ += int64_t{image.width} * image.height;
    if (pixels_ <= kMaxRequestPixels) return;
    throw Error(ErrorKind::kCapacity,
                fmt::format("with {} the pictures of the request have {} pixels together, and {} is the most: send "
                            "fewer or smaller ones",
                            name, pixels_, kMaxRequestPixels));
  }

 private:
  int64_t pixels_ = 0;
};

void check_fps(double fps, const std::string& name) {
  if (fps >= kMinFps && fps <= kMaxFps) return;
  if (fps == 0)
    throw Error(ErrorKind::kInput, fmt::format("{} has no frame rate: give one with --fps (or \"fps\")", name));
  throw Error(ErrorKind::kInput,
              fmt::format("{} has a frame rate of {}: use {} to {} frames per second", name, fps, kMinFps, kMaxFps));
}

Medium load_clip(const Video& clip, const VideoConfig& config, PixelRules rules, const std::string& name,
                 PixelCount& count) {
  Medium m{.video = true, .name = name, .fps = clip.fps};
  if (clip.gif) {
    auto frames =
        decode_gif_clip(clip.gif->path.empty() ? clip.gif->bytes : read_picture(*clip.gif), name_of(*clip.gif, name));
    m.frames = std::move(frames.frames);
    if (m.fps == 0) m.fps = frames.fps;
    for (const RgbImage& frame : m.frames) count.add(frame, name);
  }
  check_fps(m.fps, name);
  for (size_t i = 0; i < clip.frames.size(); ++i) {
    const std::string frame = name_of(clip.frames[i], fmt::format("frame {} of {}", i, name));
    m.frames.push_back(load_picture(clip.frames[i], frame, rules));
    count.add(m.frames.back(), frame);
  }
  const int total = static_cast<int>(m.frames.size());
  if (total < config.temporal_patch_size) {
    throw Error(ErrorKind::kInput,
                fmt::format("{} has {} frame(s) and a clip needs at least {}: send a single frame as an image", name,
                            total, config.temporal_patch_size));
  }
  if (clip.sample) {
    m.frame_indices = sample_frames(total, m.fps, config);
    std::vector<RgbImage> taken;
    taken.reserve(m.frame_indices.size());
    for (int i : m.frame_indices) taken.push_back(m.frames[static_cast<size_t>(i)]);
    m.frames = std::move(taken);
  } else {
    for (int i = 0; i < total; ++i) m.frame_indices.push_back(i);
  }
  return m;
}

int64_t tokens_of(const std::vector<Medium>& media, const MediaLimits& limits) {
  int64_t tokens = 0;
  for (const Medium& m : media) tokens += grid_of(m, limits).tokens(limits.image.merge_size);
  return tokens;
}

}  // namespace

std::vector<Medium> load_media(const Request& request, const VideoConfig& video, PixelRules rules) {
  std::vector<Medium> media;
  PixelCount count;
  int images = 0, videos = 0;
  for (const Message& message : request.messages) {
    for (const Part& part : message.content) {
      if (part.kind == Part::Kind::kImage) {
        const std::string name = name_of(part.image, fmt::format("image {}", ++images));
        Medium m{.name = name};
        m.frames.push_back(load_picture(part.image, name, rules));
        count.add(m.frames[0], name);
        media.push_back(std::move(m));
      } else if (part.kind == Part::Kind::kVideo) {
        const std::string name = fmt::format("video {}", ++videos);
        media.push_back(
            load_clip(part.video, video, rules, part.video.gif ? name_of(*part.video.gif, name) : name, count));
      }
    }
  }
  return media;
}

MediaLimits with_budget(const PreprocessorConfig& config, std::optional<int64_t> budget) {
  MediaLimits limits = config;
  if (!budget) return limits;
  limits.image.max_pixels = *budget;
  limits.image.min_pixels = std::min(limits.image.min_pixels, *budget);
  limits.frame_pixels = budget;
  return limits;
}

namespace {

VideoConfig video_limits(const Medium& m, const MediaLimits& limits) {
  VideoConfig v = limits.video;
  if (!limits.frame_pixels) return v;
  const int64_t frames = static_cast<int64_t>(m.frames.size());
  if (*limits.frame_pixels < v.max_pixels / frames) v.max_pixels = *limits.frame_pixels * frames;
  v.min_pixels = std::min(v.min_pixels, v.max_pixels);
  return v;
}

Size size_of(const RgbImage& image) {
  return {image.height, image.width};
}

// Runs f and puts the medium's name before what it has to say.
template <typename F>
auto named(const Medium& m, F f) {
  try {
    return f();
  } catch (const Error& e) {
    throw Error(e.kind(), m.name + ": " + e.what());
  }
}

}  // namespace

Grid grid_of(const Medium& m, const MediaLimits& limits) {
  return named(m, [&] {
    if (!m.video) return image_grid(size_of(m.frames[0]), limits.image);
    return video_grid(static_cast<int>(m.frames.size()), size_of(m.frames[0]), video_limits(m, limits));
  });
}

Patches patches_of(const Medium& m, const MediaLimits& limits, int threads) {
  return named(m, [&] {
    if (!m.video) return image_patches(m.frames[0], limits.image, threads);
    return video_patches(m.frames, m.frame_indices, m.fps, video_limits(m, limits), threads);
  });
}

std::optional<int64_t> fit_budget(const std::vector<Medium>& media, const PreprocessorConfig& config,
                                  int64_t max_tokens, std::optional<int64_t> cap) {
  const auto fits = [&](std::optional<int64_t> budget) {
    return tokens_of(media, with_budget(config, budget)) <= max_tokens;
  };
  if (cap) cap = std::min(*cap, config.image.max_pixels);
  if (fits(cap)) return cap;
  const int64_t cell = int64_t{config.image.factor()} * config.image.factor();
  int64_t low = 1, high = cap.value_or(config.image.max_pixels) / cell;  // in cells; high is too much
  while (low + 1 < high) {
    const int64_t middle = (low + high) / 2;
    (fits(middle * cell) ? low : high) = middle;
  }
  return low * cell;
}

}  // namespace vireo
