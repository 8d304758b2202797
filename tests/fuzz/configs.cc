// The configuration files of a checkpoint, divided by NUL bytes, and the size rule with whatever limits they set.
// Covers: src/model/config.cc src/model/quantization.cc src/image/preprocessor_config.cc src/image/smart_resize.cc
// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include "fuzz_util.h"
#include "image/preprocess.h"

using namespace vireo;

namespace {

void check_picture(Size size, const PixelConfig& config) {
  fuzz::accepts([&] {
    const Size target = smart_resize(size, config.factor(), config.min_pixels, config.max_pixels);
    fuzz::require(target.height > 0 && target.width > 0, "a picture keeps some pixels");
    fuzz::require(target.height % config.factor() == 0 && target.width % config.factor() == 0, "whole blocks");
    fuzz::require(image_grid(size, config).tokens(config.merge_size) > 0, "a picture has tokens");
  });
}

void check_clip(Size size, const VideoConfig& config) {
  for (const int frames : {1, 2, 7, 4096}) {
    fuzz::accepts([&] {
      const std::vector<int> taken = sample_frames(frames, 30, config);
      for (const int i : taken) fuzz::require(i >= 0 && i < frames, "sampled frames are there");
      fuzz::require(video_grid(static_cast<int>(taken.size()), size, config).patches() > 0, "a clip has patches");
    });
  }
}

void check_preprocessor(const PreprocessorConfig& config) {
  for (const Size size : {Size{1, 1}, Size{1, 200}, Size{33, 1000}, Size{480, 640}, Size{9999, 10000}}) {
    check_picture(size, config.image);
    check_clip(size, config.video);
  }
}

void check_model(const ModelConfig& config) {
  fuzz::require(!config.eos_tokens.empty(), "there is an end token");
  fuzz::require(config.text.num_heads % config.text.num_kv_heads == 0, "heads share keys evenly");
  fuzz::require(config.vision.head_dim() % 4 == 0, "two axes of rotary pairs fit a vision head");
  fuzz::require(config.vision.out_hidden_size == config.text.hidden_size, "the towers fit together");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr const char* kFiles[] = {"config.json", "generation_config.json", "preprocessor_config.json",
                                    "video_preprocessor_config.json", "processor_config.json"};
  static const fuzz::Folder folder;
  const auto parts = fuzz::split(fuzz::as_text(data, size), std::string_view("\0", 1), std::size(kFiles));
  for (size_t i = 0; i < parts.size(); ++i) folder.put(kFiles[i], parts[i]);
  fuzz::accepts([&] { check_model(load_model_config(folder.path())); });
  fuzz::accepts([&] { load_generation_defaults(folder.path()); });
  fuzz::accepts([&] { check_preprocessor(load_preprocessor_config(folder.path())); });
  return 0;
}
