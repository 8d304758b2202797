// Inputs of projections that go together, for tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>

#include "model/input_factor.h"

namespace vireo {

// Mixtures of a few sources, about a quarter as many as there are inputs, and a little of their own. Every `dead`-th input is zero; 0: none.
inline InputRows correlated_rows(int64_t rows, int64_t cols, uint32_t seed, int64_t dead = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const int64_t sources = cols / 4 + 1;
  std::vector<float> mix(static_cast<size_t>(sources * cols));
  std::mt19937 mixing(99);  // the same for every seed
  for (float& m : mix) m = normal(mixing);
  InputRows made{rows, cols, {}};
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<float> of_row(static_cast<size_t>(sources));
    for (float& s : of_row) s = normal(random);
    for (int64_t c = 0; c < cols; ++c) {
      float value = 0.3f * normal(random);
      for (int64_t s = 0; s < sources; ++s)
        value += of_row[static_cast<size_t>(s)] * mix[static_cast<size_t>(s * cols + c)];
      made.values.push_back(to_bf16(dead > 0 && c % dead == 0 ? 0 : value));
    }
  }
  return made;
}

}  // namespace vireo
