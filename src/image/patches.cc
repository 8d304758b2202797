// The patch order: temporal patch, block row, block column, row and column in the block; in a patch channel,
// frame, y, x. SPDX-License-Identifier: Apache-2.0
#include "image/patches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/thread_pool.h"
#include "image/resize.h"
#include "vireo/error.h"

namespace vireo {
namespace {

// One frame of one patch: `size` rows of interleaved pixels to three planes `plane_step` apart.
void cut_frame(const RgbImage& frame, int top, int left, int size, size_t plane_step, uint8_t* out) {
  for (int y = 0; y < size; ++y, out += size) {
    const uint8_t* rgb = frame.pixels.data() + (size_t{1} * (top + y) * frame.width + left) * 3;
    for (int c = 0; c < 3; ++c)
      for (int x = 0; x < size; ++x) out[c * plane_step + x] = rgb[3 * x + c];
  }
}

// A patch's place in its frame from its index within the temporal patch.
struct Place {
  int row;
  int column;
};

Place place_of(int64_t index, const Grid& grid, int merge) {
  const int64_t in_block = index % (merge * merge), block = index / (merge * merge);
  const int64_t blocks = grid.w / merge;
  return {static_cast<int>(block / blocks * merge + in_block / merge),
          static_cast<int>(block % blocks * merge + in_block % merge)};
}

// The patches of one temporal patch, of whose frames `frame` is number `slot` and the `copies` - 1 after it, into `out`.
void cut_slot(const RgbImage& frame, int slot, int copies, const Grid& grid, const PixelConfig& config,
              ThreadPool& pool, uint8_t* out) {
  const size_t area = size_t{1} * config.patch_size * config.patch_size;
  const size_t plane_step = area * config.temporal_patch_size;
  // Rows of blocks, which are together in both.
  const int64_t count = int64_t{grid.w} * config.merge_size;
  pool.run(grid.h / config.merge_size, [&](int64_t blocks, int) {
    for (int64_t i = blocks * count; i < (blocks + 1) * count; ++i) {
      const Place place = place_of(i, grid, config.merge_size);
      cut_frame(frame, place.row * config.patch_size, place.column * config.patch_size, config.patch_size, plane_step,
                out + i * 3 * plane_step + slot * area);
      for (int c = 0; c < 3; ++c) {
        uint8_t* plane = out + (i * 3 + c) * plane_step + slot * area;
        for (int copy = 1; copy < copies; ++copy) std::memcpy(plane + copy * area, plane, area);
      }
    }
  });
}

constexpr int64_t kPixelsOfThread = 1 << 16;  // fewer are not worth one

int threads_for(const RgbImage& image, int threads) {
  return threads_for_items(int64_t{image.width} * image.height / kPixelsOfThread, threads);
}

size_t temporal_patch_bytes(const Grid& grid, const PixelConfig& config) {
  return size_t{3} * config.temporal_patch_size * config.patch_size * config.patch_size * grid.h * grid.w;
}

Grid grid_of(int frames, Size resized, const PixelConfig& config) {
  const int t = config.temporal_patch_size;
  return {(frames - 1) / t + 1, resized.height / config.patch_size, resized.width / config.patch_size};
}

Size size_of(const RgbImage& image) {
  return {image.height, image.width};
}
Size pixels_of(const Grid& grid, const PixelConfig& config) {
  return {grid.h * config.patch_size, grid.w * config.patch_size};
}

void check_frames(std::span<const RgbImage> frames, std::span<const int> frame_indices) {
  if (frames.empty()) throw Error(ErrorKind::kInput, "the clip has no frames");
  if (frames.size() != frame_indices.size())
    throw Error(ErrorKind::kInput,
                fmt::format("the clip has {} frames but {} frame numbers", frames.size(), frame_indices.size()));
  for (size_t i = 1; i < frames.size(); ++i)
    if (size_of(frames[i]) != size_of(frames[0]))
      throw Error(
          ErrorKind::kInput,
          fmt::format("frame {} of the clip is {} x {} pixels but the first is {} x {}; all must be of one size", i,
                      frames[i].width, frames[i].height, frames[0].width, frames[0].height));
}

std::vector<double> time_stamps(std::span<const int> frame_indices, double fps, int temporal_patch_size) {
  std::vector<double> seconds;
  const size_t t = temporal_patch_size;
  for (size_t first = 0; first < frame_indices.size(); first += t) {
    const size_t last = std::min(first + t, frame_indices.size()) - 1;
    seconds.push_back((frame_indices[first] / fps + frame_indices[last] / fps) / 2);
  }
  return seconds;
}

}  // namespace

Grid image_grid(Size size, const PixelConfig& config) {
  return grid_of(1, smart_resize(size, config.factor(), config.min_pixels, config.max_pixels), config);
}

Grid video_grid(int frames, Size size, const VideoConfig& config) {
  return grid_of(frames, smart_resize_video(frames, size, config), config);
}

Patches image_patches(const RgbImage& image, const PixelConfig& config, int threads) {
  ThreadPool pool(threads_for(image, threads));
  Patches patches{.grid = image_grid(size_of(image), config)};
  const RgbImage resized = resize(image, pixels_of(patches.grid, config), pool);
  patches.pixels.resize(temporal_patch_bytes(patches.grid, config));
  cut_slot(resized, 0, config.temporal_patch_size, patches.grid, config, pool, patches.pixels.data());
  return patches;
}

Patches video_patches(std::span<const RgbImage> frames, std::span<const int> frame_indices, double source_fps,
                      const VideoConfig& config, int threads) {
  check_frames(frames, frame_indices);
  if (!(source_fps > 0) || !std::isfinite(source_fps)) source_fps = kUnknownFps;
  const int count = static_cast<int>(frames.size()), t = config.temporal_patch_size;
  Patches patches{.grid = video_grid(count, size_of(frames[0]), config)};
  const size_t step = temporal_patch_bytes(patches.grid, config);
  patches.pixels.resize(step * patches.grid.t);
  ThreadPool pool(threads_for(frames[0], threads));
  RgbImage resized;
  for (int i = 0; i < patches.grid.t * t; ++i) {
    if (i < count) resized = resize(frames[i], pixels_of(patches.grid, config), pool);
    cut_slot(resized, i % t, 1, patches.grid, config, pool, patches.pixels.data() + i / t * step);
  }
  patches.seconds = time_stamps(frame_indices, source_fps, t);
  return patches;
}

}  // namespace vireo
