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
      return in_half(sign << 11 | rest << 2, half);
    case 2:
      return in_half(sign << 5, half) | in_half(rest << 12, 1 - half);
    default:
      return in_half(sign << 9 | (rest >> 2) << 10 | (rest & 3), half);
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

// The words of one group of int8 and w8, or of two of int4 and w4, by lane.
void make_words(const Table& table, bool nibbles, const uint8_t* codes, uint32_t (&words)[4]) {
  const auto& t = table.words;
  for (int q = 0; q < 4; ++q) {
    if (nibbles) {
      const uint8_t *a = codes + 2 * q, *b = a + 8;
      words[q] = t[0][0][a[0] & 15] | t[0][1][a[0] >> 4] | t[1][0][a[1] & 15] | t[1][1][a[1] >> 4] |
                 t[2][0][b[0] & 15] | t[2][1][b[0] >> 4] | t[3][0][b[1] & 15] | t[3][1][b[1] >> 4];
    } else {
      const uint8_t* a = codes + 4 * q;
      words[q] = t[0][0][a[0]] | t[0][1][a[1]] | t[1][0][a[2]] | t[1][1][a[3]];
    }
  }
}

// Output `o` of a chunk.
void pack_row(Tier tier, const uint8_t* codes, const bf16* scales, int o, uint8_t* to) {
  const Table& table = table_of(tier);
  const bool nibbles = has_nibbles(tier);
  for (int w = 0; w < (nibbles ? 4 : 8); ++w) {
    uint32_t words[4];
    make_words(table, nibbles, codes + 16 * w, words);
    for (int q = 0; q < 4; ++q) std::memcpy(to + w / 4 * 512 + (o * 4 + q) * 16 + w % 4 * 4, &words[q], 4);
  }
  uint8_t* to_scales = to + chunk_code_bytes(tier) + o / 2 * 16 + o % 2 * 2;
  for (int g = 0; g < kChunkGroups; ++g) std::memcpy(to_scales + g / 4 * 64 + g % 4 * 4, scales + g, 2);
}

}  // namespace

void pack_tile(Tier tier, const std::function<const bf16*(int)>& row, int64_t in, uint8_t* chunks) {
  const int64_t count = chunks_of(in), bytes = chunk_bytes(tier);
  std::memset(chunks, 0, static_cast<size_t>(count * bytes));
  std::vector<uint8_t> codes(static_cast<size_t>(code_bytes(tier, count * kChunkIn)));
  std::vector<bf16> scales(static_cast<size_t>(count * kChunkGroups));
  for (int o = 0; o < kChunkOuts; ++o) {
    const bf16* from = row(o);
    if (!from) continue;
    std::fill(codes.begin(), codes.end(), uint8_t{0});
    quantize_row(tier, from, in, codes.data(), scales.data());
    for (int64_t c = 0; c < count; ++c) {
      pack_row(tier, &codes[static_cast<size_t>(code_bytes(tier, c * kChunkIn))],
               &scales[static_cast<size_t>(c * kChunkGroups)], o, chunks + c * bytes);
    }
  }
}

}  // namespace vireo::cuda
