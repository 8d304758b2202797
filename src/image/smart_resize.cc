// The size rule in IEEE double, operation for operation as the reference's Python computes it.
// SPDX-License-Identifier: Apache-2.0
#include "image/smart_resize.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>

#include "vireo/error.h"

namespace vireo {
namespace {

constexpr double kMaxAspect = 200;

void check_not_empty(Size size) {
  if (size.height <= 0 || size.width <= 0)
    throw Error(ErrorKind::kInput, fmt::format("a picture of {} x {} pixels is empty", size.width, size.height));
}

void check_aspect(Size size) {
  const auto [low, high] = std::minmax({size.height, size.width});
  if (static_cast<double>(high) / low > kMaxAspect)
    throw Error(ErrorKind::kInput,
                fmt::format("a picture of {} x {} pixels has an aspect ratio above {}; crop it first", size.width,
                            size.height, kMaxAspect));
}

void check_limits(int factor, int64_t min_pixels, int64_t max_pixels) {
  if (factor > 0 && min_pixels > 0 && max_pixels >= min_pixels) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("pixel limits need 0 < min_pixels <= max_pixels, not {} and {} (factor {})", min_pixels,
                          max_pixels, factor));
}

// Python's round: halves to even, as the default rounding mode has it.
int64_t round_to(double value, int factor) {
  return static_cast<int64_t>(std::nearbyint(value / factor)) * factor;
}
int64_t floor_to(double value, int factor) {
  return std::max<int64_t>(factor, static_cast<int64_t>(std::floor(value / factor)) * factor);
}
int64_t ceil_to(double value, int factor) {
  return static_cast<int64_t>(std::ceil(value / factor)) * factor;
}

Size make_size(int64_t height, int64_t width) {
  return {static_cast<int>(height), static_cast<int>(width)};
}

struct Limits {
  int factor;
  int64_t min_pixels;
  int64_t max_pixels;
};

// `frames` weighs the area in the scale, `rounded_frames` in the comparison with the limits.
Size fit(int64_t frames, int64_t rounded_frames, Size size, const Limits& limits) {
  const double h = size.height, w = size.width, n = static_cast<double>(frames);
  const auto [factor, min_pixels, max_pixels] = limits;
  const int64_t height = round_to(h, factor), width = round_to(w, factor);
  const int64_t area = rounded_frames * height * width;
  if (area > max_pixels) {
    const double scale = std::sqrt(n * h * w / static_cast<double>(max_pixels));
    return make_size(floor_to(h / scale, factor), floor_to(w / scale, factor));
  }
  if (area < min_pixels) {
    const double scale = std::sqrt(static_cast<double>(min_pixels) / (n * h * w));
    return make_size(ceil_to(h * scale, factor), ceil_to(w * scale, factor));
  }
  return make_size(height, width);
}

// Both sides at least `least`; no side so long that it leaves the int range, which no aspect ratio allows.
Size enlarge_to(Size size, int least) {
  if (size.height >= least && size.width >= least) return size;
  const double scale = std::max(static_cast<double>(least) / size.height, static_cast<double>(least) / size.width);
  const auto enlarge = [scale](int side) { return static_cast<int>(std::min<double>(side * scale, INT_MAX)); };
  return {enlarge(size.height), enlarge(size.width)};
}

// numpy.linspace(0, last, count), rounded to even.
std::vector<int> spread(int last, int count) {
  std::vector<int> indices(count, 0);
  if (count == 1) return indices;
  const double step = static_cast<double>(last) / (count - 1);
  for (int i = 0; i < count; ++i) indices[i] = static_cast<int>(std::nearbyint(i * step));
  indices.back() = last;
  return indices;
}

}  // namespace

Size smart_resize(Size size, int factor, int64_t min_pixels, int64_t max_pixels) {
  check_limits(factor, min_pixels, max_pixels);
  check_not_empty(size);
  check_aspect(size);
  return fit(1, 1, size, {factor, min_pixels, max_pixels});
}

Size smart_resize_video(int frames, Size size, const VideoConfig& config) {
  check_limits(config.factor(), config.min_pixels, config.max_pixels);
  check_not_empty(size);
  const int t = config.temporal_patch_size;
  if (frames < t)
    throw Error(ErrorKind::kInput,
                fmt::format("a clip needs at least {} frames, not {}; send a single frame as a picture", t, frames));
  const Size enlarged = enlarge_to(size, config.factor());
  check_aspect(enlarged);
  return fit(frames, round_to(frames, t), enlarged, {config.factor(), config.min_pixels, config.max_pixels});
}

std::vector<int> sample_frames(int total, double source_fps, const VideoConfig& config) {
  if (total <= 0) throw Error(ErrorKind::kInput, "the clip has no frames");
  if (!(source_fps > 0) || !std::isfinite(source_fps)) source_fps = kUnknownFps;
  const double wanted = std::trunc(total / source_fps * config.fps);
  const double most = std::min(config.max_frames, total);
  return spread(total - 1, static_cast<int>(std::min(std::max<double>(wanted, config.min_frames), most)));
}

}  // namespace vireo
