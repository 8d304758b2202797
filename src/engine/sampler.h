// Choosing a token from logits where greedy is not asked for: penalties, temperature, top-k, top-p, min-p, then one draw, in the
// order of the reference implementation. Random numbers depend on (seed, index of the token) alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "vireo/sampling.h"

namespace vireo {

class Sampler {
 public:
  // Ids from `vocabulary` on are padding and are never chosen. `prompt` counts for the repetition penalty.
  Sampler(const Sampling& sampling, int32_t vocabulary, std::span<const int32_t> prompt);

  // Changes `logits`. The choice counts for later penalties.
  int32_t choose(std::span<float> logits);

 private:
  void penalise(std::span<float> logits) const;
  int32_t draw(std::span<const float> logits) const;

  Sampling sampling_;
  int32_t vocabulary_;
  std::unordered_map<int32_t, int> prompt_counts_, counts_;
  uint64_t index_ = 0;
};

}  // namespace vireo
