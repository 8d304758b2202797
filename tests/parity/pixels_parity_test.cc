// Pixels against stored outputs of Hugging Face transformers: target sizes, picture decoding, resized patches
// and video patches, all identical to the last bit. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "files/json.h"
#include "files/safetensors.h"
#include "image/preprocess.h"
#include "vireo/error.h"

namespace vireo {
namespace {

const std::filesystem::path kGoldens = std::filesystem::path(VIREO_TEST_DATA) / "goldens";

RgbImage load(const std::string& file) {
  const std::string bytes = read_file(kGoldens / "preprocess" / file, 16u << 20);
  return decode_image(std::as_bytes(std::span(bytes)), file, PixelRules::kReference);
}

const HostTensor& tensor_of(const SafetensorsFile& file, const std::string& name) {
  const auto found = std::ranges::find(file.tensors(), name, &HostTensor::name);
  if (found == file.tensors().end()) throw Error(ErrorKind::kNotFound, name);
  return *found;
}

Grid grid_of(const Json& list) {
  return {list[0].get<int>(), list[1].get<int>(), list[2].get<int>()};
}

// How many bytes of a stored tensor differ, which counts a wrong size as a difference of all.
int64_t differences(const std::vector<uint8_t>& pixels, const HostTensor& stored) {
  if (pixels.size() != stored.bytes()) return static_cast<int64_t>(stored.bytes());
  const auto* expected = static_cast<const uint8_t*>(stored.data);
  int64_t count = 0;
  for (size_t i = 0; i < pixels.size(); ++i) count += pixels[i] != expected[i];
  return count;
}

// Row (height, width) or (-1, -1) for refused, as the goldens have it.
Size resized_or_refused(Size size, int64_t min_pixels, int64_t max_pixels) {
  try {
    return smart_resize(size, PixelConfig{}.factor(), min_pixels, max_pixels);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInput);
    return {-1, -1};
  }
}

TEST(PixelsParity, SmartResizeTable) {
  const Json rows = read_json(kGoldens / "smart_resize.json")["rows"];
  int refused = 0;
  for (const Json& row : rows) {
    const Size size{row[1].get<int>(), row[0].get<int>()}, expected{row[4].get<int>(), row[5].get<int>()};
    EXPECT_EQ(resized_or_refused(size, row[2].get<int64_t>(), row[3].get<int64_t>()), expected) << row.dump();
    refused += expected.height == -1;
  }
  EXPECT_EQ(rows.size(), 2004u);
  EXPECT_EQ(refused, 391);
}

// The stored pixels hold one frame; both frames of a picture's patches must be it.
std::vector<uint8_t> frame_of(const Patches& patches, const PixelConfig& config, int frame) {
  const size_t area = size_t{1} * config.patch_size * config.patch_size;
  const size_t planes = patches.pixels.size() / area;
  std::vector<uint8_t> one;
  for (size_t p = frame; p < planes; p += config.temporal_patch_size)
    one.insert(one.end(), patches.pixels.begin() + p * area, patches.pixels.begin() + (p + 1) * area);
  return one;
}

TEST(PixelsParity, Pictures) {
  const Json index = read_json(kGoldens / "preprocess" / "index.json");
  const SafetensorsFile stored = SafetensorsFile::open(kGoldens / "preprocess" / "pixels_u8.safetensors");
  std::set<std::string> files;
  for (const Json& entry : index) {
    const auto file = entry["file"].get<std::string>();
    SCOPED_TRACE(entry.dump());
    files.insert(file);
    PixelConfig config;
    config.min_pixels = entry["min_pixels"].get<int64_t>();
    config.max_pixels = entry["max_pixels"].get<int64_t>();
    const RgbImage image = load(file);
    EXPECT_EQ(image.width, entry["size_after_load"][0].get<int>());
    EXPECT_EQ(image.height, entry["size_after_load"][1].get<int>());
    const Patches patches = image_patches(image, config);
    EXPECT_EQ(patches.grid, grid_of(entry["grid_thw"]));
    const HostTensor& pixels =
        tensor_of(stored, file + "|" + std::to_string(config.min_pixels) + "|" + std::to_string(config.max_pixels));
    for (int frame = 0; frame < config.temporal_patch_size; ++frame)
      EXPECT_EQ(differences(frame_of(patches, config, frame), pixels), 0);
  }
  EXPECT_EQ(index.size(), 37u);
  EXPECT_EQ(files.size(), 30u);
}

TEST(PixelsParity, HeaderSizesAreThoseOfTheDecodedPictures) {
  for (const Json& entry : read_json(kGoldens / "preprocess" / "index.json")) {
    const auto file = entry["file"].get<std::string>();
    const std::string bytes = read_file(kGoldens / "preprocess" / file, 16u << 20);
    const ImageSize size = image_size(std::as_bytes(std::span(bytes)), file);
    EXPECT_EQ(size.width, entry["size_after_load"][0].get<int>()) << file;
    EXPECT_EQ(size.height, entry["size_after_load"][1].get<int>()) << file;
  }
}

std::vector<RgbImage> pick_frames(const HostTensor& stored, const std::vector<int>& indices) {
  const int height = static_cast<int>(stored.shape[1]), width = static_cast<int>(stored.shape[2]);
  const size_t bytes = size_t{3} * height * width;
  const auto* all = static_cast<const uint8_t*>(stored.data);
  std::vector<RgbImage> frames;
  for (int i : indices) frames.push_back({width, height, {all + i * bytes, all + (i + 1) * bytes}});
  return frames;
}

std::vector<int> every_frame(int count) {
  std::vector<int> indices;
  for (int i = 0; i < count; ++i) indices.push_back(i);
  return indices;
}

TEST(PixelsParity, Clips) {
  const Json index = read_json(kGoldens / "video" / "index.json");
  const SafetensorsFile stored = SafetensorsFile::open(kGoldens / "video" / "videos.safetensors");
  for (const Json& entry : index) {
    SCOPED_TRACE(entry.dump());
    const auto name = entry["name"].get<std::string>();
    const int count = entry["frames"].get<int>();
    const double fps = entry["fps"].get<double>();
    VideoConfig config;
    if (const Json& size = entry["size"]; !size.is_null()) {
      config.min_pixels = size["shortest_edge"].get<int64_t>();
      config.max_pixels = size["longest_edge"].get<int64_t>();
    }
    const std::vector<int> indices =
        entry["sampled"].get<bool>() ? sample_frames(count, fps, config) : every_frame(count);
    EXPECT_EQ(indices, entry["frames_indices"].get<std::vector<int>>());
    const std::vector<RgbImage> frames = pick_frames(tensor_of(stored, name + ".frames"), indices);
    const Patches patches = video_patches(frames, indices, fps, config);
    EXPECT_EQ(patches.grid, grid_of(entry["grid_thw"]));
    EXPECT_EQ(differences(patches.pixels, tensor_of(stored, name + ".pixels")), 0);
    EXPECT_EQ(patches.seconds.size(), static_cast<size_t>(patches.grid.t));
  }
  EXPECT_EQ(index.size(), 5u);
}

}  // namespace
}  // namespace vireo
