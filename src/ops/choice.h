// How a sequence's ids are chosen, and the chance in it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "vireo/sampling.h"

#ifdef __CUDACC__
#define VIREO_HOST_DEVICE __host__ __device__
#else
#define VIREO_HOST_DEVICE
#endif

namespace vireo {

struct Choice {
  Sampling sampling;
  int32_t vocabulary = 0;           // ids from here on are padding and are never chosen
  std::span<const int32_t> prompt;  // counts for the repetition penalty
};

inline bool has_penalties(const Sampling& s) {
  return s.repetition_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0;
}
// Whether the largest logit is always the choice.
inline bool is_greedy(const Sampling& s) {
  return !has_penalties(s) && s.temperature <= 0;
}

// SplitMix64's output function.
VIREO_HOST_DEVICE inline uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// 53 random bits that only (seed, index of the token) decides.
VIREO_HOST_DEVICE inline uint64_t chance(uint64_t seed, uint64_t index) {
  return mix_bits(mix_bits(seed + 0x9e3779b97f4a7c15ull) + index * 0x9e3779b97f4a7c15ull) >> 11;
}

}  // namespace vireo
