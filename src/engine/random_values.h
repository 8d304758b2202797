// Values of random weights: normally distributed, and a function of the seed, the tensor's name and the element alone, so
// that any part of a tensor can be made by itself, on any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"

namespace vireo {

struct NormalDistribution {
  double mean = 0;
  double deviation = 1;
};

class RandomValues {
 public:
  // The distribution is given by 4096 quantiles, each as likely: the values lie within 3.7 deviations.
  RandomValues(uint64_t seed, std::string_view tensor, const NormalDistribution& distribution);

  // The elements from `first`, which must be a multiple of 4.
  void fill(int64_t first, std::span<bf16> out) const;

 private:
  static constexpr size_t kQuantiles = 4096;
  uint64_t key_;
  std::array<bf16, kQuantiles> quantiles_;
};

}  // namespace vireo
