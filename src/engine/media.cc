// SPDX-License-Identifier: Apache-2.0
#include "engine/media.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "files/json.h"

namespace vireo {
namespace {

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
  return p.path.empty() ? fallback : p.path.string();
}

RgbImage load_picture(const Picture& p, const std::string& name, PixelRules rules) {
  if (p.rgb) return copy_raw(p);
  return decode_image(p.path.empty() ? p.bytes : read_picture(p), name, rules);
}

Medium load_clip(const Video& clip, const VideoConfig& config, PixelRules rules, const std::string& name) {
  Medium m{.video = true, .name = name, .fps = clip.fps};
  if (clip.gif) {
    auto frames =
        decode_gif_clip(clip.gif->path.empty() ? clip.gif->bytes : read_picture(*clip.gif), name_of(*clip.gif, name));
    m.frames = std::move(frames.frames);
    if (m.fps <= 0) m.fps = frames.fps;
  }
  for (size_t i = 0; i < clip.frames.size(); ++i) {
    m.frames.push_back(
        load_picture(clip.frames[i], name_of(clip.frames[i], fmt::format("frame {} of {}", i, name)), rules));
  }
  if (m.fps <= 0)
    throw Error(ErrorKind::kInput, fmt::format("{} has no frame rate: give one with --fps (or \"fps\")", name));
  const int total = static_cast<int>(m.frames.size());
  if (total < config.temporal_patch_size) {
    throw Error(ErrorKind::kInput,
                fmt::format("{} has {} frame(s) and a clip needs at least {}: send a single frame as an image", name,
                            total, config.temporal_patch_size));
  }
  if (clip.sample) {
    m.frame_indices = sample_frames(total, m.fps, config);
    std::vector<RgbImage> taken;
    for (int i : m.frame_indices) taken.push_back(m.frames[static_cast<size_t>(i)]);
    m.frames = std::move(taken);
  } else {
    for (int i = 0; i < total; ++i) m.frame_indices.push_back(i);
  }
  return m;
}

int64_t tokens_of(const std::vector<Medium>& media, const PreprocessorConfig& config) {
  int64_t tokens = 0;
  for (const Medium& m : media) tokens += grid_of(m, config).tokens(config.image.merge_size);
  return tokens;
}

}  // namespace

std::vector<Medium> load_media(const Request& request, const VideoConfig& video, PixelRules rules) {
  std::vector<Medium> media;
  int images = 0, videos = 0;
  for (const Message& message : request.messages) {
    for (const Part& part : message.content) {
      if (part.kind == Part::Kind::kImage) {
        const std::string name = name_of(part.image, fmt::format("image {}", ++images));
        Medium m{.name = name};
        m.frames.push_back(load_picture(part.image, name, rules));
        media.push_back(std::move(m));
      } else if (part.kind == Part::Kind::kVideo) {
        media.push_back(load_clip(part.video, video, rules, fmt::format("video {}", ++videos)));
      }
    }
  }
  return media;
}

PreprocessorConfig with_budget(const PreprocessorConfig& config, std::optional<int64_t> budget) {
  PreprocessorConfig c = config;
  if (!budget) return c;
  c.image.max_pixels = std::min(c.image.max_pixels, *budget);
  c.image.min_pixels = std::min(c.image.min_pixels, c.image.max_pixels);
  return c;
}

namespace {

// The clip's own limit counts all frames; the budget counts one.
VideoConfig video_limits(const Medium& m, const PreprocessorConfig& config) {
  VideoConfig v = config.video;
  const int64_t frames = static_cast<int64_t>(m.frames.size());
  v.max_pixels = std::min(v.max_pixels, config.image.max_pixels * frames);
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

Grid grid_of(const Medium& m, const PreprocessorConfig& config) {
  return named(m, [&] {
    if (!m.video) return image_grid(size_of(m.frames[0]), config.image);
    return video_grid(static_cast<int>(m.frames.size()), size_of(m.frames[0]), video_limits(m, config));
  });
}

Patches patches_of(const Medium& m, const PreprocessorConfig& config) {
  return named(m, [&] {
    if (!m.video) return image_patches(m.frames[0], config.image);
    return video_patches(m.frames, m.frame_indices, m.fps, video_limits(m, config));
  });
}

std::optional<int64_t> fit_budget(const std::vector<Medium>& media, const PreprocessorConfig& config,
                                  int64_t max_tokens, std::optional<int64_t> cap) {
  const auto fits = [&](std::optional<int64_t> budget) {
    return tokens_of(media, with_budget(config, budget)) <= max_tokens;
  };
  if (fits(cap)) return cap;
  const int64_t cell = int64_t{config.image.factor()} * config.image.factor();
  int64_t low = 1, high = std::min(cap.value_or(config.image.max_pixels), config.image.max_pixels) /
                          cell;  // in cells; high is too much
  while (low + 1 < high) {
    const int64_t middle = (low + high) / 2;
    (fits(middle * cell) ? low : high) = middle;
  }
  return low * cell;
}

}  // namespace vireo
