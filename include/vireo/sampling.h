// How tokens are chosen.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vireo {

// Temperature 0: always the most likely one. The order is: penalties, temperature, top-k, top-p, min-p.
struct Sampling {
  double temperature = 0;
  int top_k = 0;  // 0: no limit
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;  // over prompt and answer
  double presence_penalty = 0;    // over the answer
  double frequency_penalty = 0;   // over the answer
  uint64_t seed = 0;              // the same seed gives the same answer
};

}  // namespace vireo
