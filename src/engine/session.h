// Session: one conversation's place in the KV cache. It appends prompts in chunks, decodes token by token, and can be cut back.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/image_cache.h"
#include "engine/prompt.h"
#include "model/decoder.h"
#include "model/vision.h"
#include "ops/runner.h"

namespace vireo {

class Session {
 public:
  struct Parts {
    const ModelConfig& config;
    Backend& backend;
    VisionTower& tower;
    Decoder& decoder;
    Runner& runner;
    ImageCache& images;
    int64_t prefill_chunk;
    std::function<void()> check_cancelled;  // throws Error(kCancelled)
  };
  explicit Session(const Parts& parts) : p_(parts) {}

  // Keeps what the cache already holds of the prompt (all of it but one token at most) and returns how much that is.
  int64_t begin(const Prompt& prompt);
  // Image rows for the tokens that are not in the cache: remembered, or encoded now.
  void encode(const Prompt& prompt, const OnStage& on_stage = {}, const Probe* probe = nullptr);
  // Appends the prompt's other tokens; returns the id chosen for the last row. -1: its logits are not finite.
  int32_t extend(const Prompt& prompt, const OnStage& on_stage = {});
  // Puts `token` in the next place, so that decode() continues from it.
  void seat(int32_t token);
  // Feeds `token`, which was seated or is what the last step chose, and returns the next. `more` steps may follow at once: each
  // feeds what the one before it chose, nobody looks at logits(), and the cache has room for them all. One may run ahead.
  int32_t decode(int32_t token, int64_t more = 0);
  void reset();

  int64_t length() const { return static_cast<int64_t>(ids_.size()); }
  Tensor logits() const { return p_.runner.logits(); }

 private:
  HostStep chunk(const Prompt& prompt, int64_t begin, int64_t end) const;
  EncodedMedium encode_one(const Prompt& prompt, size_t index, const OnStage& on_stage, const Probe* probe);

  Parts p_;
  std::vector<int32_t> ids_;       // tokens in the cache
  std::vector<MediumSpan> media_;  // pictures among them
  int32_t next_position_ = 0;
  size_t first_visual_ = 0;  // the prompt's first visual row that merged_ holds
  OwnedTensor merged_;
  std::vector<OwnedTensor> deepstack_;
};

}  // namespace vireo
