// How a matrix in a tier lies in device memory: in the order in which the lanes of a warp read it, codes so spread over their bits
// that few instructions make pairs of bf16 of them, each group's scales in the same chunk.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "ops/tier.h"

namespace vireo::cuda {

// A chunk is what a warp multiplies at once: 8 outputs by 128 inputs, 8 groups of 16. Its codes come first: of each group lane l has inputs
// 4 (l % 4) to the third after it of output l / 4; it reads its codes by 16 bytes. Then the scales: for each half of the
// groups and each two outputs those of 4 groups, each a pair of the two outputs'.
inline constexpr int kChunkOuts = 8, kChunkIn = 128, kChunkGroups = kChunkIn / static_cast<int>(kTierGroup);
inline constexpr int kChunkScaleBytes = kChunkGroups * kChunkOuts * 2;
constexpr int chunk_code_bytes(Tier tier) {
  return kChunkOuts * kChunkIn / (has_nibbles(tier) ? 2 : 1);
}
constexpr int chunk_bytes(Tier tier) {
  return chunk_code_bytes(tier) + kChunkScaleBytes;
}
template <Tier kTier>
inline constexpr int kChunkBytes = chunk_bytes(kTier);
inline int chunks_of(int64_t in) {
  return static_cast<int>((in + kChunkIn - 1) / kChunkIn);
}

// A word of codes is two halves of 16 bits, for the low and the high element of pairs of bf16. What lane bits say which: of int8 and w8 a
// word holds one group (two pairs, A and B), of int4 and w4 two groups (A, B, then C, D of the next). Where the bits of each lie in a half:
//   int8   sign and magnitude: A 15, 6..0;   B 7, 14..8
//   w8     sign, then the other seven: A 15, 10..4;   B 11, 14..12 and 3..0
//   int4   sign and magnitude: A 15, 6..4;   B 7, 14..12;   C 11, 2..0;   D 3, 10..8
//   w4     sign, then the other three: A 15, 8..6;   B 11, 4..2;   C 5 and, in the other half, 14..12;   D 9, 10, 1..0
//
// Makes the chunks of one tile of rows row(0) to row(7), null where there is none.
void pack_tile(Tier tier, const std::function<const bf16*(int)>& row, int64_t in, uint8_t* chunks);

}  // namespace vireo::cuda
