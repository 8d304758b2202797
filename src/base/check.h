// CHECK: for mistakes of the program, never for input. It prints the place and aborts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vireo {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace vireo

#define CHECK(condition) ((condition) ? static_cast<void>(0) : ::vireo::check_failed(#condition, __FILE__, __LINE__))
