// Chat messages as JSON, up to the finished prompt of the tiny checkpoint. Paths are not opened: the picture they name
// is replaced by a small one.
// Covers: src/engine/messages.cc src/engine/base64.cc src/engine/prompt.cc
// SPDX-License-Identifier: Apache-2.0
#include "engine/prompt.h"

#include <algorithm>

#include "fuzz_util.h"
#include "vireo/vireo.h"

using namespace vireo;

namespace {

constexpr int kSide = 256;
constexpr int64_t kMaxPixels = 1 << 17;

struct Tiny {
  std::filesystem::path folder = VIREO_SOURCE_DIR "/models/tiny";
  ModelConfig config = load_model_config(folder);
  PreprocessorConfig preprocessor = load_preprocessor_config(folder);
  Tokenizer tokenizer = Tokenizer::load(folder / "tokenizer.json");
};

void make_small(Picture& picture) {
  static const std::vector<uint8_t> kPixels(kSide * kSide * 3, 99);
  if (picture.path.empty()) {
    fuzz::accepts([&] {
      const ImageSize size = image_size(picture.bytes, "x");
      if (int64_t{size.width} * size.height > kMaxPixels) picture.bytes.clear();
    });
    return;
  }
  picture = {.rgb = kPixels.data(), .width = kSide, .height = kSide, .stride = 3 * kSide};
}

void make_small(Video& video) {
  for (Picture& frame : video.frames) make_small(frame);
  if (!video.gif) return;
  if (video.gif->path.empty()) return make_small(*video.gif);
  video.frames.assign(2, Picture{.path = "x"});
  video.gif.reset();
  make_small(video);
}

void check_prompt(const Prompt& prompt, const ModelConfig& config) {
  fuzz::require(!prompt.ids.empty() && prompt.ids.size() == prompt.positions.size(), "each token has a position");
  for (const int32_t row : prompt.visual_rows) {
    const int32_t id = prompt.ids.at(static_cast<size_t>(row));
    fuzz::require(id == config.image_token || id == config.video_token, "visual rows are pad tokens");
  }
}

// With room for every picture, and with so little that they are made smaller.
void try_prompt(const Request& request, ChatTemplate::Style style) {
  static const Tiny tiny;
  const ChatTemplate chat(style);
  for (const int64_t max_seq : {2048, 192}) {
    Request small = request;
    small.max_new_tokens = std::min(request.max_new_tokens, 16);
    const PromptBuilder builder(tiny.config, tiny.tokenizer, chat, tiny.preprocessor, {.max_seq = max_seq});
    fuzz::accepts([&] { check_prompt(builder.build(small), tiny.config); });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Request request;
  if (!fuzz::accepts([&] { request = parse_messages(fuzz::as_text(data, size), "folder"); })) return 0;
  for (Message& message : request.messages) {
    for (Part& part : message.content) {
      if (part.kind == Part::Kind::kImage) make_small(part.image);
      if (part.kind == Part::Kind::kVideo) make_small(part.video);
    }
  }
  for (const auto style : {ChatTemplate::Style::kInstruct, ChatTemplate::Style::kThinking}) try_prompt(request, style);
  return 0;
}
