// Session: one conversation's place in the KV cache. It appends prompts in chunks, decodes token by token, and can be cut back.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

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
    int prefill_chunk;
    std::function<void()> check_cancelled;  // throws Error(kCancelled)
  };
  explicit Session(const Parts& parts) : p_(parts) {}

  // Encodes the prompt's media; the image rows stay until the next call.
  void encode(const Prompt& prompt, const Probe* probe = nullptr);
  // Appends tokens [length(), end) of the prompt; the last row's id is chosen. -1: its logits are not finite.
  int32_t extend(const Prompt& prompt, int64_t end);
  // Puts `token` in the next place, so that decode() continues from it.
  void seat(int32_t token);
  // Feeds the seated token, or the one that was chosen before it, and returns the next.
  int32_t decode();
  // Cuts the sequence back to `length` tokens, of which the next stands at `next_position`.
  void truncate(int64_t length, int32_t next_position);

  int64_t length() const { return length_; }
  Tensor logits() const { return p_.runner.logits(); }

 private:
  HostStep chunk(const Prompt& prompt, int64_t begin, int64_t end) const;

  Parts p_;
  int64_t length_ = 0;  // tokens in the cache
  int32_t next_position_ = 0;
  OwnedTensor merged_;
  std::vector<OwnedTensor> deepstack_;
};

}  // namespace vireo
