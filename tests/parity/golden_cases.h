// The cases of golden sets as parameters of tests, and the rule by which a backend that rounds is close to the reference
// implementation.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <ostream>
#include <string>
#include <vector>

#include "goldens.h"

namespace vireo::parity {

// Rows enough for every case's prompt.
inline constexpr int64_t kMaxRows = 1024;

struct Case {
  std::string set, name;
};

void PrintTo(const Case& c, std::ostream* out);
std::vector<Case> cases(std::initializer_list<std::string> sets);
std::string case_name(const testing::TestParamInfo<Case>& info);

int32_t argmax(const float* row, size_t n);

// The logits of the prompt and of every greedy step point where the stored ones do, and another token is chosen only where two
// are as good as equal, which is printed with `label`.
void expect_same_direction(Rig& rig, const Golden& golden, const std::string& label);

}  // namespace vireo::parity
