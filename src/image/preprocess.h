// From RGB pictures and clips to the patches of the vision tower: the size rule, the resize, the patch order and the
// grid, exactly as the reference processor makes them (Qwen2VLImageProcessorFast and Qwen3VLVideoProcessor).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "files/image_file.h"
#include "files/json.h"

namespace vireo {

// Numbers of preprocessor_config.json (or processor_config.json's image_processor) and of the video twin.
struct PixelConfig {
  int patch_size = 16;
  int temporal_patch_size = 2;
  int merge_size = 2;
  int64_t min_pixels = 65536;
  int64_t max_pixels = 16777216;
  float mean[3] = {0.5f, 0.5f, 0.5f};  // of values in 0..1
  float std[3] = {0.5f, 0.5f, 0.5f};
  int factor() const { return patch_size * merge_size; }
};

struct VideoConfig : PixelConfig {  // pixel limits are over the whole clip
  double fps = 2;
  int min_frames = 4;
  int max_frames = 768;
};

struct PreprocessorConfig {
  PixelConfig image;
  VideoConfig video;
};

// Reads every spelling: preprocessor_config.json + video_preprocessor_config.json, or processor_config.json with
// image_processor and video_processor; size {shortest_edge, longest_edge} or min_pixels / max_pixels. Missing files give the published
// defaults. Throws Error(kInput) naming file and key.
PreprocessorConfig load_preprocessor_config(const std::filesystem::path& folder);

struct Size {
  int height = 0;
  int width = 0;
  bool operator==(const Size&) const = default;
};

// The target size of a picture: multiples of `factor`, area within [min_pixels, max_pixels], halves to even, in double.
// Throws Error(kInput) for an aspect ratio above 200.
Size smart_resize(Size size, int factor, int64_t min_pixels, int64_t max_pixels);
// The same for a clip of `frames` frames; throws for fewer than temporal_patch_size frames.
Size smart_resize_video(int frames, Size size, const VideoConfig& config);

// Which frames the reference samples from a clip of `total` frames at `source_fps`.
std::vector<int> sample_frames(int total, double source_fps, const VideoConfig& config);

// Bicubic with antialias in 8 bits, horizontal pass first, 16-bit weights (torchvision's CPU kernel): bit exact.
RgbImage resize(const RgbImage& image, Size target);

// Patch grid in patches: frames / temporal_patch_size, rows, columns.
struct Grid {
  int t = 0;
  int h = 0;
  int w = 0;
  bool operator==(const Grid&) const = default;
  int64_t patches() const { return int64_t{t} * h * w; }
  int64_t tokens(int merge_size) const { return patches() / (merge_size * merge_size); }
};

// `pixels` holds grid.patches() rows of 3 * temporal_patch_size * patch_size^2 bytes (channel, frame, y, x), rows in
// merge-block order: block row, block column, row in block, column in block.
struct Patches {
  Grid grid;
  std::vector<uint8_t> pixels;
  std::vector<double> seconds;  // videos: the time stamp of each temporal patch; empty for an image
};

// A picture, resized within [min_pixels, max_pixels].
Patches image_patches(const RgbImage& image, const PixelConfig& config);
// Frames that are all of one size and already sampled; seconds[k] is the mean time of the two frames of patch k, frame i
// being at frame_indices[i] / source_fps. An odd last frame is repeated. Throws for frames of different sizes.
Patches video_patches(std::span<const RgbImage> frames, std::span<const int> frame_indices, double source_fps,
                      const VideoConfig& config);

// The grid alone, without pixels.
Grid image_grid(Size size, const PixelConfig& config);
Grid video_grid(int frames, Size size, const VideoConfig& config);

}  // namespace vireo
