// The numbers of a checkpoint's preprocessor files, and their reader.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

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
  VideoConfig() {
    min_pixels = 4096;
    max_pixels = 25165824;
  }
  double fps = 2;
  int min_frames = 4;
  int max_frames = 768;
};

struct PreprocessorConfig {
  PixelConfig image;
  VideoConfig video;
};

// Reads every spelling: preprocessor_config.json + video_preprocessor_config.json, or processor_config.json
// with image_processor and video_processor (which win); size {shortest_edge, longest_edge} or min_pixels /
// max_pixels (which win). Missing files and keys give the published defaults. Throws Error(kInput) naming
// file and key, also for a step that is switched off or another filter, which would need other code.
PreprocessorConfig load_preprocessor_config(const std::filesystem::path& folder);

}  // namespace vireo
