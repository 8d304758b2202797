// Element types of tensors and the bfloat16 conversions.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace vireo {

enum class DType : uint8_t { kF64, kF32, kF16, kBF16, kF8E4M3, kF8E5M2, kI64, kI32, kI16, kI8, kU8, kBool };

// Bytes of one element.
size_t size_of(DType dtype);
// The name that safetensors headers use, e.g. "BF16".
const char* name_of(DType dtype);

struct bf16 {
  uint16_t bits = 0;
};

inline float to_float(bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Round to nearest, ties to even; NaN stays NaN.
inline bf16 to_bf16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

}  // namespace vireo
