// See the header.
// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/sha256_blocks.h"

namespace vireo {
namespace {

// Fractional parts of the square roots of the first 8 primes.
constexpr std::array<uint32_t, 8> kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

std::array<uint32_t, 64> schedule(const unsigned char* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i, block += 4) {
    w[i] = uint32_t{block[0]} << 24 | uint32_t{block[1]} << 16 | uint32_t{block[2]} << 8 | block[3];
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    const uint32_t s0 = std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3;
    const uint32_t s1 = std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  return w;
}

void add_block(Sha256State& state, const unsigned char* block) {
  const auto w = schedule(block);
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kSha256Round[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const Sha256State delta = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += delta[i];
}

}  // namespace

void add_sha256_blocks(Sha256State& state, const unsigned char* blocks, size_t count) {
  for (size_t i = 0; i < count; ++i) add_block(state, blocks + 64 * i);
}

std::string sha256_hex(std::string_view bytes) {
  static const AddSha256Blocks fast = fast_sha256_blocks(), add = fast ? fast : add_sha256_blocks;
  const size_t whole = bytes.size() / 64, rest = bytes.size() % 64;
  // The rest, a one bit, zeros and the length in bits: one block or two.
  std::array<unsigned char, 128> end = {};
  const size_t end_size = rest < 56 ? 64 : 128;
  if (rest > 0) std::memcpy(end.data(), bytes.data() + 64 * whole, rest);
  end[rest] = 0x80;
  for (size_t i = 0; i < 8; ++i)
    end[end_size - 1 - i] = static_cast<unsigned char>(uint64_t{bytes.size()} * 8 >> (8 * i));
  Sha256State state = kStart;
  add(state, reinterpret_cast<const unsigned char*>(bytes.data()), whole);
  add(state, end.data(), end_size / 64);
  std::string hex;
  for (const uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
  }
  return hex;
}

}  // namespace vireo
