// Pictures and clips cut into the patches that the vision tower reads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "files/image_file.h"
#include "image/smart_resize.h"

namespace vireo {

// Patch grid in patches: frames / temporal_patch_size, rows, columns.
struct Grid {
  int t = 0;
  int h = 0;
  int w = 0;
  bool operator==(const Grid&) const = default;
  int64_t patches() const { return int64_t{t} * h * w; }
  int64_t tokens(int merge_size) const { return patches() / (merge_size * merge_size); }
};

// `pixels` holds grid.patches() rows of 3 * temporal_patch_size * patch_size^2 bytes (channel, frame, y, x),
// rows in merge-block order: block row, block column, row in block, column in block.
struct Patches {
  Grid grid;
  std::vector<uint8_t> pixels;
  std::vector<double> seconds;  // videos: the time stamp of each temporal patch; empty for an image
};

// A picture, resized within [min_pixels, max_pixels], by at most `threads` threads; 0: as many as there are processors, up to 8.
Patches image_patches(const RgbImage& image, const PixelConfig& config, int threads = 0);
// Frames that are all of one size and already sampled; seconds[k] is the mean time of the first and last
// frame of patch k, frame i being at frame_indices[i] / source_fps. Missing frames of the last patch repeat
// the last one. Throws Error(kInput) for frames of different sizes.
Patches video_patches(std::span<const RgbImage> frames, std::span<const int> frame_indices, double source_fps,
                      const VideoConfig& config, int threads = 0);

// The grid alone, without pixels.
Grid image_grid(Size size, const PixelConfig& config);
Grid video_grid(int frames, Size size, const VideoConfig& config);

}  // namespace vireo
