// How far two vectors point the same way.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <span>

#include "base/check.h"

namespace vireo {

// Of the angle between them, in double; NaN where one is zero. Both have the same size.
inline double cosine(std::span<const float> a, std::span<const float> b) {
  CHECK(a.size() == b.size());
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += double{a[i]} * b[i];
    aa += double{a[i]} * a[i];
    bb += double{b[i]} * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

}  // namespace vireo
