// Counter-based: word i of a tensor is the SplitMix64 output function of key + i (Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators", 2014) and gives four elements.
// SPDX-License-Identifier: Apache-2.0
#include "engine/random_values.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace vireo {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
constexpr int64_t kLanes = 4;  // elements of one 64-bit word, 16 bits each

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

uint64_t hash_fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// x with a standard normal probability p of being below it, by Newton's method from 0.
double standard_quantile(double p) {
  double x = 0;
  for (int step = 0; step < 40; ++step) {
    const double below = 0.5 * std::erfc(-x * std::sqrt(0.5));
    const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0));
    x += std::clamp((p - below) / density, -1.0, 1.0);
  }
  return x;
}

template <size_t N>
std::array<double, N> standard_quantiles() {
  std::array<double, N> values;
  for (size_t i = 0; i < N; ++i) values[i] = standard_quantile((static_cast<double>(i) + 0.5) / N);
  return values;
}

}  // namespace

RandomValues::RandomValues(uint64_t seed, std::string_view tensor, const NormalDistribution& distribution)
    : key_(mix(hash_fnv1a(tensor) ^ mix(seed + kGolden))) {
  static const auto standard = standard_quantiles<kQuantiles>();
  std::transform(standard.begin(), standard.end(), quantiles_.begin(),
                 [&](double x) { return to_bf16(static_cast<float>(distribution.mean + distribution.deviation * x)); });
}

void RandomValues::fill(int64_t first, std::span<bf16> out) const {
  CHECK(first >= 0 && first % kLanes == 0);
  uint64_t counter = key_ + static_cast<uint64_t>(first / kLanes) * kGolden;
  const size_t whole = out.size() - out.size() % kLanes;
  for (size_t i = 0; i < whole; i += kLanes, counter += kGolden) {
    const uint64_t word = mix(counter);
    for (size_t lane = 0; lane < kLanes; ++lane) out[i + lane] = quantiles_[word >> (16 * lane + 4) & (kQuantiles - 1)];
  }
  const uint64_t word = mix(counter);
  for (size_t i = whole; i < out.size(); ++i) {
    out[i] = quantiles_[word >> (16 * (i - whole) + 4) & (kQuantiles - 1)];
  }
}

}  // namespace vireo
