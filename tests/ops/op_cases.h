// The table of op cases: every op at the shapes that matter, awkward ones included. One table, four uses: each backend
// against the reference, each fused override against its default body, micro-benchmarks, and the list of what is covered.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ops/backend.h"

namespace vireo::testing_ops {

// Fused ops run as the backend has them, or by the default body on the same backend.
enum class Body { kOwn, kDefault };

struct OpCase {
  std::string op;
  std::string shape;
  double tolerance = 0;  // relative norm of the difference, float32 backends; looser formats multiply it
  bool fused = false;
  // The outputs are of the residual type, or of one that all backends share, and by the backend's own body nothing on the way
  // to them is of the activation type: where only that is narrow, the result is as close as that of a float32 backend.
  bool residual = false;
  KvMode kv = KvMode::kBf16;  // for backends that have it
  // Runs the op once on inputs made from `seed` and returns all it wrote; outputs are poisoned with NaN before.
  std::function<std::vector<float>(Backend& backend, uint32_t seed, Body body)> run = {};

  std::string name() const { return op + "_" + shape; }
};

const std::vector<OpCase>& op_cases();

}  // namespace vireo::testing_ops
