// How a matrix in a tier lies in device memory: in the order in which the lanes of a warp read it, codes so spread over their bits
// that few instructions make pairs of bf16 of them, each group's scales in the same chunk.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "ops/tier.h"

namespace vireo::cuda {

// A chunk is what a warp multiplies at once: 16 outputs by 128 inputs, 8 groups of 16, in 8 tensor core products: four take four inputs each
// of the first four groups, then four of the others. Lane l has outputs l / 4 and l / 4 + 8 of groups l % 4 and l % 4 + 4, and
// reads its codes by 16 bytes, in the order of the products. Then come the scales, by lane: of output l / 4 in groups 2 (l % 4) and
// the next, then of output l / 4 + 8.
inline constexpr int kChunkOuts = 16, kChunkIn = 128, kChunkGroups = kChunkIn / static_cast<int>(kTierGroup);
inline constexpr int kChunkScaleBytes = kChunkGroups * kChunkOuts * 2;
constexpr int chunk_code_bytes(Tier tier) {
  return kChunkOuts * kChunkIn / (has_nibbles(tier) ? 2 : 1);
}
constexpr int chunk_bytes(Tier tier) {
  return chunk_code_bytes(tier) + kChunkScaleBytes;
}
template <Tier kTier>
inline constexpr int kChunkBytes = chunk_bytes(kTier);
template <Tier kTier>
inline constexpr bool kHasNibbles = has_nibbles(kTier);
inline int chunks_of(int64_t in) {
  return static_cast<int>((in + kChunkIn - 1) / kChunkIn);
}

// A word of codes is two halves of 16 bits, for the low and the high element of pairs of bf16, two inputs that follow each other. Of int4 and
// w4 a word is all of a product: A and B are the first two inputs of both outputs, C and D the other two. Of int8 and w8 a word has A
// and B, and the next word those of the other two inputs. Where the bits of each lie in a half:
//   int8   sign and magnitude: A 15, 6..0;   B 7, 14..8
//   w8     sign, then the other seven: A 15, 10..4;   B 11, 14..12 and 3..0
//   int4   sign and magnitude: A 15, 6..4;   B 7, 14..12;   C 11, 2..0;   D 3, 10..8
//   w4     sign, then the other three: A 15, 8..6;   B 12, 5..3;   C 9, 2..0;   D 13, 11, 10, 14
//
// Gives row 0 to 15 of a tile as quantize_row lays it out; false: there is none.
using TileRow = std::function<bool(int row, uint8_t* codes, bf16* scales)>;
// Makes the chunks of one tile.
void pack_tile(Tier tier, const TileRow& row, int64_t in, uint8_t* chunks);

}  // namespace vireo::cuda
