// Pictures and clips of a request: decoded once, measured for the pixel budget, then cut into patches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "image/preprocess.h"
#include "vireo/vireo.h"

namespace vireo {

// One picture (frames has one entry) or clip after decoding.
struct Medium {
  bool video = false;
  std::string name;  // for messages
  std::vector<RgbImage> frames;
  std::vector<int> frame_indices;
  double fps = 0;
};

// All media of the request, in order of appearance. Throws Error naming the file; kCapacity when they are too many
// pixels together.
std::vector<Medium> load_media(const Request& request, const VideoConfig& video, PixelRules rules);

// The preprocessor's limits with a budget of pixels per picture or frame.
struct MediaLimits : PreprocessorConfig {
  MediaLimits(const PreprocessorConfig& config) : PreprocessorConfig(config) {}
  std::optional<int64_t> frame_pixels;  // of a clip, whose own limits count all its frames
};

// A budget takes the place of the checkpoint's limit of a picture; nothing: the checkpoint's own limits.
MediaLimits with_budget(const PreprocessorConfig& config, std::optional<int64_t> budget);

Grid grid_of(const Medium& medium, const MediaLimits& limits);
// `threads` as image_patches has them.
Patches patches_of(const Medium& medium, const MediaLimits& limits, int threads = 0);

// The largest budget, at most `cap` and the checkpoint's limit, under which all media together take at most `max_tokens`
// tokens; nothing when no budget is needed. The smallest possible budget when even that is too much.
std::optional<int64_t> fit_budget(const std::vector<Medium>& media, const PreprocessorConfig& config,
                                  int64_t max_tokens, std::optional<int64_t> cap);

}  // namespace vireo
