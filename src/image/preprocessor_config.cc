// Preprocessor files: finding the section, reading the keys in every spelling, refusing what the code does
// not do. SPDX-License-Identifier: Apache-2.0
#include "image/preprocessor_config.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>

#include "files/json.h"
#include "files/mapped_file.h"
#include "vireo/error.h"

namespace vireo {
namespace {

constexpr int64_t kMaxPatch = 64, kMaxMerge = 8, kMaxTemporal = 8;
constexpr int64_t kMaxArea = int64_t{1} << 30;
constexpr int64_t kMaxFrames = 1 << 20;
constexpr double kMaxFps = 1000;
constexpr int64_t kBicubic = 3;

// A JSON object and how errors call it.
struct Section {
  Json keys;
  std::string what;
};

// A null means the default, like a missing key.
Json without_nulls(const Json& object) {
  Json kept = Json::object();
  for (const auto& [key, value] : object.items())
    if (!value.is_null()) kept[key] = value;
  return kept;
}

Section make_section(const Json& value, const std::string& what) {
  if (!value.is_object()) throw Error(ErrorKind::kInput, fmt::format("{} must be a JSON object", what));
  return {without_nulls(value), what};
}

std::optional<Section> read_section(const std::filesystem::path& folder, const char* file) {
  if (!is_present(folder / file)) return std::nullopt;
  return make_section(read_json(folder / file), file);
}

std::optional<Section> find_section(const std::filesystem::path& folder, const char* member, const char* file) {
  if (const auto whole = read_section(folder, "processor_config.json"))
    if (const Json* part = find_key(whole->keys, member))
      return make_section(*part, fmt::format("{} of processor_config.json", member));
  return read_section(folder, file);
}

int read_int(const Section& s, const char* key, int64_t max, int fallback) {
  return static_cast<int>(get_int_or(s.keys, key, s.what, 1, max, fallback));
}

void read_area(const Section& s, const char* edge, const char* area, int64_t& value) {
  if (const Json* size = find_key(s.keys, "size"))
    value = get_int_or(make_section(*size, s.what + " size").keys, edge, s.what + " size", 1, kMaxArea, value);
  value = get_int_or(s.keys, area, s.what, 1, kMaxArea, value);
}

void read_channels(const Section& s, const char* key, float (&values)[3]) {
  const Json* list = find_key(s.keys, key);
  if (!list) return;
  if (!list->is_array() || list->size() != 3)
    throw Error(ErrorKind::kInput, fmt::format("{}: {} must be a list of three numbers", s.what, key));
  for (size_t c = 0; c < 3; ++c) {
    const Json& entry = (*list)[c];
    values[c] = entry.is_number() ? entry.get<float>() : NAN;
    if (!(values[c] >= 0 && values[c] <= 1))
      throw Error(ErrorKind::kInput,
                  fmt::format("{}: {} must be a list of three numbers from 0 to 1, not {}", s.what, key, list->dump()));
  }
}

void check_steps(const Section& s) {
  for (const char* step : {"do_convert_rgb", "do_resize", "do_rescale", "do_normalize"})
    if (!get_bool_or(s.keys, step, s.what, true))
      throw Error(ErrorKind::kInput, fmt::format("{}: {} false is not supported", s.what, step));
  get_int_or(s.keys, "resample", s.what, kBicubic, kBicubic, kBicubic);
  const double rescale = get_double_or(s.keys, "rescale_factor", s.what, 1.0 / 255);
  if (!(std::abs(rescale * 255 - 1) < 1e-6))
    throw Error(ErrorKind::kInput, fmt::format("{}: rescale_factor must be 1/255, not {}", s.what, rescale));
}

void check_values(const Section& s, const PixelConfig& config) {
  if (config.min_pixels > config.max_pixels)
    throw Error(ErrorKind::kInput, fmt::format("{}: the least area {} is above the largest {}", s.what,
                                               config.min_pixels, config.max_pixels));
  for (float value : config.std)
    if (value == 0) throw Error(ErrorKind::kInput, fmt::format("{}: image_std must not be zero", s.what));
}

void read_pixels(const Section& s, PixelConfig& config) {
  check_steps(s);
  config.patch_size = read_int(s, "patch_size", kMaxPatch, config.patch_size);
  config.temporal_patch_size = read_int(s, "temporal_patch_size", kMaxTemporal, config.temporal_patch_size);
  config.merge_size = read_int(s, "merge_size", kMaxMerge, config.merge_size);
  read_area(s, "shortest_edge", "min_pixels", config.min_pixels);
  read_area(s, "longest_edge", "max_pixels", config.max_pixels);
  read_channels(s, "image_mean", config.mean);
  read_channels(s, "image_std", config.std);
  check_values(s, config);
}

void read_video(const Section& s, VideoConfig& config) {
  read_pixels(s, config);
  config.fps = get_double_or(s.keys, "fps", s.what, config.fps);
  config.min_frames = read_int(s, "min_frames", kMaxFrames, config.min_frames);
  config.max_frames = read_int(s, "max_frames", kMaxFrames, config.max_frames);
  if (!(config.fps > 0 && config.fps <= kMaxFps))
    throw Error(ErrorKind::kInput,
                fmt::format("{}: fps must be above 0 and at most {}, not {}", s.what, kMaxFps, config.fps));
  if (config.min_frames > config.max_frames)
    throw Error(ErrorKind::kInput,
                fmt::format("{}: min_frames {} is above max_frames {}", s.what, config.min_frames, config.max_frames));
}

}  // namespace

PreprocessorConfig load_preprocessor_config(const std::filesystem::path& folder) {
  PreprocessorConfig config;
  if (const auto image = find_section(folder, "image_processor", "preprocessor_config.json"))
    read_pixels(*image, config.image);
  if (const auto video = find_section(folder, "video_processor", "video_preprocessor_config.json"))
    read_video(*video, config.video);
  return config;
}

}  // namespace vireo
