// Hashing of what comes from files. The seed is random per process, so that no file can be made to collide;
// nothing but speed depends on it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

namespace vireo {

// Odd, as multiplicative hashing wants it.
inline uint64_t hash_seed() {
  static const uint64_t seed = [] {
    std::random_device device;
    return (static_cast<uint64_t>(device()) << 32 | device()) | 1;
  }();
  return seed;
}

struct HashBytes {
  uint64_t seed = hash_seed();
  size_t operator()(std::string_view bytes) const {
    uint64_t hash = seed ^ bytes.size();
    while (!bytes.empty()) {
      uint64_t word = 0;
      const size_t n = bytes.size() < 8 ? bytes.size() : 8;
      std::memcpy(&word, bytes.data(), n);
      hash = (hash ^ word) * (seed ^ 0x9E3779B97F4A7C14ull);
      hash ^= hash >> 32;
      bytes.remove_prefix(n);
    }
    return hash;
  }
};

}  // namespace vireo
