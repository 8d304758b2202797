// Products with matrices in a tier: codes become pairs of bf16 in registers, without a rounding, and the product of each group,
// whose 16 inputs are those of one tensor core product, is scaled in float32.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/tensor_core.cuh"
#include "cuda/tier_layout.h"

namespace vireo::cuda {

// Pairs of bf16 times one power of two: what was a small number becomes a usual one. Exact, numbers below 2^-126 included.
__device__ __forceinline__ uint32_t scaled(uint32_t pair, uint32_t power) {
  uint32_t v;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(pair), "r"(power), "r"(0u));
  return v;
}

__device__ __forceinline__ uint32_t bytes_swapped(uint32_t halves) {
  return __byte_perm(halves, 0, 0x2301);
}

// What codes are made of: kWords words of two groups become pairs A, B of the first and C, D of the second, as tier_layout.h has
// their bits, in units of kUnit.
template <Tier kTier>
struct Decoder;

template <>
struct Decoder<Tier::kInt8> {
  static constexpr int kWords = 2;
  static constexpr float kUnit = 64;
  static __device__ __forceinline__ void decode(const uint32_t* words, uint32_t (&pairs)[4]) {
    constexpr uint32_t kMask = 0x807f807f, kPower = 0x7f007f00;
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      pairs[2 * g] = scaled(words[g] & kMask, kPower);
      pairs[2 * g + 1] = scaled(bytes_swapped(words[g]) & kMask, kPower);
    }
  }
};

template <>
struct Decoder<Tier::kW8> {
  static constexpr int kWords = 2;
  static constexpr float kUnit = 1;
  static __device__ __forceinline__ void decode(const uint32_t* words, uint32_t (&pairs)[4]) {
    constexpr uint32_t kPower = 0x7b807b80;
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      const uint32_t w = words[g];
      pairs[2 * g] = scaled(w & 0x87f087f0, kPower);
      pairs[2 * g + 1] = scaled((w << 4 & 0x80f080f0) | (w >> 4 & 0x07000700), kPower);
    }
  }
};

template <>
struct Decoder<Tier::kInt4> {
  static constexpr int kWords = 1;
  static constexpr float kUnit = 4;
  static __device__ __forceinline__ void decode(const uint32_t* words, uint32_t (&pairs)[4]) {
    constexpr uint32_t kMask = 0x80708070, kPower = 0x7f007f00;
    const uint32_t w = words[0], s = bytes_swapped(w);
    pairs[0] = scaled(w & kMask, kPower);
    pairs[1] = scaled(s & kMask, kPower);
    pairs[2] = scaled(w << 4 & kMask, kPower);
    pairs[3] = scaled(s << 4 & kMask, kPower);
  }
};

template <>
struct Decoder<Tier::kW4> {
  static constexpr int kWords = 1;
  static constexpr float kUnit = 1;
  static __device__ __forceinline__ void decode(const uint32_t* words, uint32_t (&pairs)[4]) {
    constexpr uint32_t kMask = 0x81c081c0, kPower = 0x7e807e80;
    const uint32_t w = words[0];
    pairs[0] = scaled(w & kMask, kPower);
    pairs[1] = scaled(w << 4 & kMask, kPower);
    pairs[2] = scaled(__funnelshift_l(w, w, 10) & kMask, kPower);
    pairs[3] = scaled((w << 6 & 0x80c080c0) | (w >> 2 & 0x01000100), kPower);
  }
};

// sums += a chunk in shared memory times 128 inputs of x. Of the sums of row lane / 4 and outputs 2 (lane % 4) and the next, those of even
// groups lie at [0][0] and [0][1], of odd ones at [1][2] and [1][3]; all are to be multiplied by Decoder<kTier>::kUnit.
template <Tier kTier>
__device__ __forceinline__ void multiply_chunk(uint32_t codes, uint32_t scales, uint32_t x, bool has_row,
                                               float (&sums)[2][4]) {
  using D = Decoder<kTier>;
  uint4 code, scale;
#pragma unroll
  for (int piece = 0; piece < kChunkGroups / 2; ++piece) {
    constexpr int kPiecesOfLoad = 4 / D::kWords;
    if (piece % kPiecesOfLoad == 0) code = load_shared(codes + piece / kPiecesOfLoad * 512);
    if (piece % 2 == 0) scale = load_shared(scales + piece / 2 * 64);
    const uint4 a = load_shared_or_zeros(x + piece * 64, has_row);
    const uint32_t words[4] = {code.x, code.y, code.z, code.w};
    uint32_t pairs[4];
    D::decode(words + piece % kPiecesOfLoad * D::kWords, pairs);
    const uint32_t operand[4] = {a.x, a.y, a.z, a.w};
    const uint32_t even = piece % 2 == 0 ? scale.x : scale.z, odd = piece % 2 == 0 ? scale.y : scale.w;
    float first[4], second[4];
    multiply(first, operand, pairs[0], pairs[1]);
    multiply(second, operand, pairs[2], pairs[3]);
    sums[0][0] += low_bf16(even) * first[0];
    sums[0][1] += high_bf16(even) * first[1];
    sums[1][2] += low_bf16(odd) * second[2];
    sums[1][3] += high_bf16(odd) * second[3];
  }
}

}  // namespace vireo::cuda
