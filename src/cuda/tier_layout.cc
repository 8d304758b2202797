// SPDX-License-Identifier: Apache-2.0
#include "cuda/tier_layout.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace vireo::cuda {
namespace {

// Below, `pair` is 0 to 3 for A to D, and `half` the half of a word.
constexpr uint32_t in_half(uint32_t bits, int half) {
  return bits << (16 * half);
}

// Sign and magnitude of an integer of 8 or 4 bits, as sign << 7 | magnitude.
uint32_t sign_magnitude(uint8_t code, bool nibble) {
  const int value = nibble ? (code < 8 ? code : code - 16) : static_cast<int8_t>(code);
  return value < 0 ? static_cast<uint32_t>(0x80 | -value) : static_cast<uint32_t>(value);
}

uint32_t spread_int8(uint8_t code, int pair, int half) {
  const uint32_t v = sign_magnitude(code, false), sign = v >> 7, m = v & 0x7f;
  return in_half(pair == 0 ? sign << 15 | m : sign << 7 | m << 8, half);
}

uint32_t spread_w8(uint8_t code, int pair, int half) {
  const uint32_t sign = code >> 7, high = code >> 4 & 7, low = code & 15;
  return in_half(pair == 0 ? sign << 15 | high << 8 | low << 4 : high << 12 | sign << 11 | low, half);
}

uint32_t spread_int4(uint8_t code, int pair, int half) {
  constexpr int kSign[] = {15, 7, 11, 3}, kLowest[] = {4, 12, 0, 8};
  const uint32_t v = sign_magnitude(code, true);
  return in_half((v >> 7) << kSign[pair] | (v & 7) << kLowest[pair], half);
}

uint32_t spread_w4(uint8_t code, int pair, int half) {
  const uint32_t sign = code >> 3 & 1, rest = code & 7;
  switch (pair) {
    case 0:
      return in_half(sign << 15 | rest << 6, half);
    case 1:
      return in_half(sign << 12 | rest << 3, half);
    case 2:
      return in_half(sign << 9 | rest, half);
    default:
      return in_half(sign << 13 | rest >> 1 << 10 | (rest & 1) << 14, half);
  }
}

uint32_t spread(Tier tier, uint8_t code, int pair, int half) {
  switch (tier) {
    case Tier::kInt8:
      return spread_int8(code, pair, half);
    case Tier::kW8:
      return spread_w8(code, pair, half);
    case Tier::kInt4:
      return spread_int4(code, pair, half);
    default:
      return spread_w4(code, pair, half);
  }
}

// What each code becomes, by pair and half.
struct Table {
  uint32_t words[4][2][256];

  explicit Table(Tier tier) {
    for (int pair = 0; pair < 4; ++pair) {
      for (int half = 0; half < 2; ++half) {
        for (int code = 0; code < 256; ++code) {
          words[pair][half][code] = spread(tier, static_cast<uint8_t>(code), pair % (has_nibbles(tier) ? 4 : 2), half);
        }
      }
    }
  }
};

const Table& table_of(Tier tier) {
  static const Table int8(Tier::kInt8), w8(Tier::kW8), int4(Tier::kInt4), w4(Tier::kW4);
  return tier == Tier::kInt8 ? int8 : tier == Tier::kW8 ? w8 : tier == Tier::kInt4 ? int4 : w4;
}

uint8_t code_at(const uint8_t* codes, int k, bool nibbles) {
  return nibbles ? codes[k / 2] >> (k % 2 * 4) & 15 : codes[k];
}

// Output `o` of a chunk, to the words of its four lanes.
void pack_row(Tier tier, const uint8_t* codes, const bf16* scales, int o, uint8_t* to) {
  const Table& table = table_of(tier);
  const bool nibbles = has_nibbles(tier);
  const int words_of_product = nibbles ? 1 : 2;
  for (int group = 0; group < kChunkGroups; ++group) {
    const int lane = o % 8 * 4 + group % 4;
    for (int pair = 0; pair < 8; ++pair) {
      const int k = group * static_cast<int>(kTierGroup) + 2 * pair, product = group / 4 * 4 + pair / 2,
                second = pair % 2;
      const auto& halves = table.words[o / 8 + (nibbles ? 2 * second : 0)];
      const uint32_t bits = halves[0][code_at(codes, k, nibbles)] | halves[1][code_at(codes, k + 1, nibbles)];
      const int w = product * words_of_product + (nibbles ? 0 : second);
      uint8_t* at = to + w / 4 * 512 + lane * 16 + w % 4 * 4;
      uint32_t word;
      std::memcpy(&word, at, 4);
      word |= bits;
      std::memcpy(at, &word, 4);
    }
    const int scale_lane = o % 8 * 4 + group / 2;
    std::memcpy(to + chunk_code_bytes(tier) + scale_lane * 8 + o / 8 * 4 + group % 2 * 2, scales + group, 2);
  }
}

}  // namespace

void pack_tile(Tier tier, const TileRow& row, int64_t in, uint8_t* chunks) {
  const int64_t count = chunks_of(in), bytes = chunk_bytes(tier);
  std::memset(chunks, 0, static_cast<size_t>(count * bytes));
  std::vector<uint8_t> codes(static_cast<size_t>(code_bytes(tier, count * kChunkIn)));
  std::vector<bf16> scales(static_cast<size_t>(count * kChunkGroups));
  for (int o = 0; o < kChunkOuts; ++o) {
    std::fill(codes.begin(), codes.end(), uint8_t{0});
    if (!row(o, codes.data(), scales.data())) continue;
    for (int64_t c = 0; c < count; ++c) {
      pack_row(tier, &codes[static_cast<size_t>(code_bytes(tier, c * kChunkIn))],
               &scales[static_cast<size_t>(c * kChunkGroups)], o, chunks + c * bytes);
    }
  }
}

}  // namespace vireo::cuda
