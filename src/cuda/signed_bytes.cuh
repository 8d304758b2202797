// Codes of a byte, a sign and a magnitude of 7 bits, as pairs of bf16: by masks alone, two bytes beside each other having each other's sign.
// What weights of tier int8 and a cache of int8 are made of.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vireo::cuda {

// Bits of codes, where bf16 has its own, are numbers near its smallest: products count in units far below one. So what codes are multiplied
// with is larger by this, exactly; it overflows from 2^64 on, and what is less than about 2^-80 is lost of a result.
inline constexpr float kCodedFactor = 0x1p64f;
// Of a product of such bytes with what is larger.
inline constexpr float kSignedByteUnit = 0x1p69f;  // 2^133 / kCodedFactor

// Of bytes 0 and 2 of a word, and of 1 and 3.
__device__ __forceinline__ uint32_t even_numbers(uint32_t word) {
  return word & 0x807f807fu;
}
__device__ __forceinline__ uint32_t odd_numbers(uint32_t word) {
  return __byte_perm(word, 0, 0x2301) & 0x807f807fu;
}

}  // namespace vireo::cuda
