// SPDX-License-Identifier: Apache-2.0
#include <cpuid.h>
#include <immintrin.h>

#include "base/sha256_blocks.h"

namespace vireo {
namespace {

// With the processor's SHA instructions, which keep the state as the pairs a b e f and c d g h, highest lane first, and take four
// rounds' words at a time.
__attribute__((target("sha,sse4.1"))) void add_blocks_sha(Sha256State& state, const unsigned char* blocks,
                                                          size_t count) {
  const __m128i to_big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i* rounds = reinterpret_cast<const __m128i*>(kSha256Round.data());
  __m128i* words = reinterpret_cast<__m128i*>(state.data());
  // Highest lane first, as the names say.
  const __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128(words), 0x1b);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1b);
  __m128i abef = _mm_unpackhi_epi64(efgh, abcd), cdgh = _mm_unpacklo_epi64(efgh, abcd);
  for (; count > 0; --count, blocks += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 16; ++i) {
      __m128i& now = w[i % 4];
      if (i < 4) {
        now = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks) + i), to_big_endian);
      } else {
        const __m128i last = w[(i + 3) % 4], before = w[(i + 2) % 4];
        now = _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]), _mm_alignr_epi8(last, before, 4));
        now = _mm_sha256msg2_epu32(now, last);
      }
      const __m128i sum = _mm_add_epi32(now, _mm_loadu_si128(rounds + i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  _mm_storeu_si128(words, _mm_shuffle_epi32(_mm_unpackhi_epi64(cdgh, abef), 0x1b));
  _mm_storeu_si128(words + 1, _mm_shuffle_epi32(_mm_unpacklo_epi64(cdgh, abef), 0x1b));
}

bool has_sha_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1) && __builtin_cpu_supports("sse4.1");
}

}  // namespace

AddSha256Blocks fast_sha256_blocks() {
  return has_sha_instructions() ? add_blocks_sha : nullptr;
}

}  // namespace vireo
