// The size rule: to which multiples of the factor a picture or a clip is resized, and which frames of a clip
// are taken. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "image/preprocessor_config.h"

namespace vireo {

struct Size {
  int height = 0;
  int width = 0;
  bool operator==(const Size&) const = default;
};

// The target size of a picture: multiples of `factor`, area within [min_pixels, max_pixels], halves to even,
// in double (smart_resize of transformers' qwen2_vl image processor). Throws Error(kInput) for an aspect
// ratio above 200.
Size smart_resize(Size size, int factor, int64_t min_pixels, int64_t max_pixels);
// The same for a clip of `frames` frames (smart_resize of the qwen3_vl video processor); throws for fewer
// than temporal_patch_size frames.
Size smart_resize_video(int frames, Size size, const VideoConfig& config);

// Which frames the reference samples from a clip of `total` frames at `source_fps` (24 where that is not a
// positive number).
std::vector<int> sample_frames(int total, double source_fps, const VideoConfig& config);

// What the reference takes for a rate that is not known.
inline constexpr double kUnknownFps = 24;

}  // namespace vireo
