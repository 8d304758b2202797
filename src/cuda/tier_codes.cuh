// Products with matrices in a tier: codes become pairs of bf16 in registers, without a rounding, and each group's scale multiplies
// that group's product in float32.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "base/check.h"
#include "cuda/signed_bytes.cuh"
#include "cuda/tensor_core.cuh"
#include "cuda/tier_layout.h"

namespace vireo::cuda {

// On the host: what `work` does with the tier in which a matrix lies as a constant, work(std::integral_constant<Tier, ...>).
template <typename Work>
void with_tier(Tier tier, Work work) {
  switch (tier) {
    case Tier::kInt8:
      return work(std::integral_constant<Tier, Tier::kInt8>());
    case Tier::kW8:
      return work(std::integral_constant<Tier, Tier::kW8>());
    case Tier::kInt4:
      return work(std::integral_constant<Tier, Tier::kInt4>());
    default:
      CHECK(tier == Tier::kW4);
      work(std::integral_constant<Tier, Tier::kW4>());
  }
}

// What a product's words become: a of m16n8k16, whose rows are outputs. kUnit: of a product with staged rows.
template <Tier kTier>
struct Decoder;

template <>
struct Decoder<Tier::kInt8> {
  static constexpr float kUnit = kSignedByteUnit;
  static __device__ __forceinline__ void decode(const uint32_t* words, uint32_t (&a)[4]) {
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      a[2 * g] = even_numbers(words[g]);
      a[2 * g + 1] = odd_numbers(words[g]);
    }
  }
};

template <>
struct Decoder<Tier::kW8> {
  static constexpr float kUnit = 0x1p56f;  // 2^120 / kCodedFactor
  static __device__ __forceinline__ void decode(const uint32_t* words, uint32_t (&a)[4]) {
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      const uint32_t w = words[g];
      a[2 * g] = w & 0x87f087f0;
      a[2 * g + 1] = (w << 4 & 0x80f080f0) | (w >> 4 & 0x07000700);
    }
  }
};

template <>
struct Decoder<Tier::kInt4> {
  static constexpr float kUnit = 0x1p65f;  // 2^129 / kCodedFactor
  static __device__ __forceinline__ void decode(const uint32_t* words, uint32_t (&a)[4]) {
    constexpr uint32_t kMask = 0x80708070;
    const uint32_t w = words[0], s = __byte_perm(w, 0, 0x2301);
    a[0] = w & kMask;
    a[1] = s & kMask;
    a[2] = w << 4 & kMask;
    a[3] = s << 4 & kMask;
  }
};

template <>
struct Decoder<Tier::kW4> {
  static constexpr float kUnit = 0x1p62f;  // 2^126 / kCodedFactor
  static __device__ __forceinline__ void decode(const uint32_t* words, uint32_t (&a)[4]) {
    constexpr uint32_t kMask = 0x81c081c0;
    const uint32_t w = words[0];
    a[0] = w & kMask;
    a[1] = w << 3 & kMask;
    a[2] = w << 6 & kMask;
    a[3] = (w >> 10 & 0x001b001b) * 0x1084 & kMask;  // shifts by 2, 7 and 12 at once, none of whose bits meet
  }
};

__device__ __forceinline__ uint2 load_shared_pair(uint32_t from) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(from) : "memory");
  return v;
}

// 16 bytes to and from the same place of a chunk: those of its codes by the lane that reads them.
template <Tier kTier>
__device__ __forceinline__ void copy_chunk(uint32_t to, const uint8_t* from, int lane) {
  constexpr int kPieces = kChunkBytes<kTier> / 16;
#pragma unroll
  for (int i = 0; i < kPieces; i += 32) {
    if (i + lane < kPieces) copy_async(to + (i + lane) * 16, from + (i + lane) * 16, true);
  }
}

// A lane's sums over its groups, by row of x, of outputs lane / 4 and lane / 4 + 8.
template <int kRows>
struct CodedSums {
  float of[kRows][2] = {};
};

// What a lane brings of one row to the products of half a chunk.
struct HalfInputs {
  uint4 first, second;
};

// 128 inputs of `rows` rows of x in shared memory, `row_bytes` apart, and 32 bytes of zeros.
struct CodedInputs {
  uint32_t x, zeros;
  int row_bytes, rows;

  __device__ __forceinline__ HalfInputs read(int row, int half) const {
    const int lane = threadIdx.x % 32, group = lane / 4;
    const bool mine = group == lane % 4 + half * 4;
    const uint32_t at = mine ? x + row * row_bytes + group * (kTierGroup * 2) : zeros;
    return {load_shared(at), load_shared(at + 16)};
  }
};
inline constexpr int kZeroBytes = 32;

// Those of one row in registers, for several chunks.
struct HeldInputs {
  static constexpr int rows = 1;
  HalfInputs halves[2];

  __device__ __forceinline__ HeldInputs(const CodedInputs& in, bool exist) : halves{in.read(0, 0), in.read(0, 1)} {
    if (exist) return;
    constexpr uint4 kNone = {0, 0, 0, 0};
    halves[0] = halves[1] = {kNone, kNone};
  }
  __device__ __forceinline__ HalfInputs read(int /*row*/, int half) const { return halves[half]; }
};

// sums += a chunk in shared memory times x. A product takes four inputs of each of four groups, and column n of b has those of group n and
// zeros: what one accumulator gathers is of one group.
// Inputs: CodedInputs or HeldInputs.
template <Tier kTier, int kRows, typename Inputs>
__device__ __forceinline__ void multiply_chunk(uint32_t chunk, const Inputs& in, CodedSums<kRows>& sums) {
  constexpr int kWords = kHasNibbles<kTier> ? 1 : 2;  // of a product
  const int lane = threadIdx.x % 32;
  const uint2 scale = load_shared_pair(chunk + kChunkBytes<kTier> - kChunkScaleBytes + lane * 8);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t a[4][4];
    {
      uint4 codes[kWords];
#pragma unroll
      for (int i = 0; i < kWords; ++i) codes[i] = load_shared(chunk + (half * kWords + i) * 512 + lane * 16);
      uint32_t words[4 * kWords];
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        words[4 * i] = codes[i].x;
        words[4 * i + 1] = codes[i].y;
        words[4 * i + 2] = codes[i].z;
        words[4 * i + 3] = codes[i].w;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) Decoder<kTier>::decode(words + j * kWords, a[j]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (kRows > 1 && r >= in.rows) break;
      const HalfInputs x = in.read(r, half);
      float c[4];
      multiply(c, a[0], x.first.x, x.first.y);
      multiply_add(c, a[1], x.first.z, x.first.w);
      multiply_add(c, a[2], x.second.x, x.second.y);
      multiply_add(c, a[3], x.second.z, x.second.w);
      sums.of[r][0] += low_bf16(scale.x) * c[0];
      sums.of[r][0] += high_bf16(scale.x) * c[1];
      sums.of[r][1] += low_bf16(scale.y) * c[2];
      sums.of[r][1] += high_bf16(scale.y) * c[3];
    }
  }
}

// The sum of four lanes: of the first output in those whose number is even, of the second in the others.
__device__ __forceinline__ float sum_of_quad(const float (&of)[2], int lane) {
  const bool second = lane % 2 == 1;
  float v = second ? of[1] : of[0];
  v += __shfl_xor_sync(kAllLanes, second ? of[0] : of[1], 1);
  return v + __shfl_xor_sync(kAllLanes, v, 2);
}

}  // namespace vireo::cuda
