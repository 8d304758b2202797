// Keys and values in codes (KvMode::kInt8), bytes as signed_bytes.cuh has them. A row of a head has one bf16 scale; scales lie as the rows do,
// [page][kv_head][64]. Pieces of 16 codes lie where kv_code_place() says, so that tokens copied to shared memory as they are meet other
// banks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/norm_rope.cuh"
#include "cuda/signed_bytes.cuh"

namespace vireo::cuda {

// Bytes of a head's row: copies are of 16.
__host__ __device__ inline constexpr int kv_code_bytes(int head_dim) {
  return (head_dim + 15) / 16 * 16;
}

// Where code `dim` of a token of a page lies in its row.
__host__ __device__ inline constexpr int kv_code_place(int dim, int token, int head_dim) {
  const int turn = head_dim == 128 ? token & 7 : head_dim == 64 ? token >> 1 & 3 : 0;
  return dim ^ turn << 4;
}

// Bytes of sign and magnitude, each with its own sign, as they are stored.
__device__ __forceinline__ uint32_t with_signs_swapped(uint32_t word) {
  return (word & 0x7f7f7f7fu) | (word & 0x80008000u) >> 8 | (word & 0x00800080u) << 8;
}

// As quantize_kv of ops/tier.h. The bits of magnitudes are in the order of the magnitudes, those of NaN last.
__device__ __forceinline__ uint32_t magnitude_bits(float v) {
  return __float_as_uint(v) & 0x7fffffffu;
}
// v / d as `/` rounds it, `reciprocal` being 1 / d, where neither is so small that rests are lost.
inline constexpr float kLeastDivided = 0x1p-80f;
__device__ __forceinline__ float quotient(float v, float d, float reciprocal) {
  const float q = v * reciprocal;
  return fmaf(fmaf(-q, d, v), reciprocal, q);
}
// Of a head, whose largest magnitude that a lane has is `mine`.
__device__ __forceinline__ float kv_scale(uint32_t mine) {
  const uint32_t bits = __reduce_max_sync(kAllLanes, mine);
  const float largest = __uint_as_float(bits < 0x7f800000u ? bits : 0x7fc00000u);
  const float scale = largest >= kLeastDivided ? quotient(largest, 127, 1.0f / 127) : largest / 127;
  return __uint_as_float(uint32_t{bf16_bits(scale)} << 16);
}
// Codes against a scale, with one reciprocal for all.
struct KvDivisor {
  float scale, reciprocal;

  __device__ __forceinline__ explicit KvDivisor(float s) : scale(s) {
    float near;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(s));
    reciprocal = fmaf(fmaf(-s, near, 1.0f), near, near);
  }
  __device__ __forceinline__ uint32_t code(float v) const {
    const float magnitude = scale >= kLeastDivided ? quotient(fabsf(v), scale, reciprocal) : scale > 0 ? fabsf(v) / scale : 0;
    // Its whole part rounded half to even is in the lowest bits.
    const float whole = fminf(magnitude, 127.0f) + 0x1p23f;
    return (__float_as_uint(whole) & 127) | (__float_as_uint(v) >> 31 << 7);
  }
};

// A head by one warp, as HeadPairs has it.
struct CodedHead {
  uint32_t low[kMaxPairs], high[kMaxPairs];
  float scale;

  // To the row of a token of a page.
  __device__ __forceinline__ void put(int head_dim, int token, uint8_t* to) const {
    const int n = head_dim / 2, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kMaxPairs; ++i) {
      const int j = i * 32 + lane;
      if (j >= n) continue;
      to[kv_code_place(j, token, head_dim)] = static_cast<uint8_t>(low[i]);
      to[kv_code_place(n + j, token, head_dim)] = static_cast<uint8_t>(high[i]);
    }
  }
};
// What is behind the end of `p` are zeros; head_dim / 2 is even.
__device__ __forceinline__ CodedHead code_head(const HeadPairs& p) {
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kMaxPairs; ++i) {
    largest = max(largest, max(magnitude_bits(p.low[i]), magnitude_bits(p.high[i])));
  }
  CodedHead coded;
  coded.scale = kv_scale(largest);
  const KvDivisor divisor(coded.scale);
#pragma unroll
  for (int i = 0; i < kMaxPairs; ++i) {
    const uint32_t low = divisor.code(p.low[i]), high = divisor.code(p.high[i]);
    // The lane beside this one has the elements beside these.
    const uint32_t signs = __shfl_xor_sync(kAllLanes, (low & 128) | (high & 128) << 1, 1);
    coded.low[i] = (low & 127) | (signs & 128);
    coded.high[i] = (high & 127) | (signs >> 1 & 128);
  }
  return coded;
}

// A head by one warp, 8 values of each lane; of lanes behind the end zeros.
struct CodedChunks {
  uint2 codes;
  float scale;

  __device__ __forceinline__ void put(int head_dim, int token, uint8_t* to) const {
    const int dim = threadIdx.x % 32 * 8;
    if (dim < head_dim) *reinterpret_cast<uint2*>(to + kv_code_place(dim, token, head_dim)) = codes;
  }
};
__device__ __forceinline__ CodedChunks code_chunks(uint4 chunk) {
  const uint32_t pairs[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
  uint32_t largest = 0;
#pragma unroll
  for (const uint32_t pair : pairs)
    largest = max(largest, max(magnitude_bits(low_bf16(pair)), magnitude_bits(high_bf16(pair))));
  CodedChunks coded = {{0, 0}, kv_scale(largest)};
  const KvDivisor divisor(coded.scale);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t& word = i < 2 ? coded.codes.x : coded.codes.y;
    const uint32_t two = divisor.code(low_bf16(pairs[i])) | divisor.code(high_bf16(pairs[i])) << 8;
    word |= two << i % 2 * 16;
  }
  coded.codes = {with_signs_swapped(coded.codes.x), with_signs_swapped(coded.codes.y)};
  return coded;
}

// The scales of a lane's four tokens of a warp's 16, two bf16 in each: token half * 8 + lane % 4 * 2 and the next.
struct TokenScales {
  uint32_t key[2] = {0, 0}, value[2] = {0, 0};

  // Those of 16 tokens, one after the other, of which the first `tokens` are there.
  __device__ __forceinline__ void load(const bf16* keys, const bf16* values, int tokens) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = half * 8 + threadIdx.x % 4 * 2;
      if (token >= tokens) continue;
      key[half] = static_cast<uint32_t>(load_index(reinterpret_cast<const int32_t*>(keys + token)));
      value[half] = static_cast<uint32_t>(load_index(reinterpret_cast<const int32_t*>(values + token)));
    }
  }
  // From shared memory, those of keys and then of values.
  __device__ __forceinline__ void read(const void* scales) {
    const uint32_t* pairs = static_cast<const uint32_t*>(scales);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      key[half] = pairs[half * 4 + threadIdx.x % 4];
      value[half] = pairs[8 + half * 4 + threadIdx.x % 4];
    }
  }
  // Of one token, which all lanes know.
  __device__ __forceinline__ void set(int token, float of_key, float of_value) {
    const bool mine = token % 8 / 2 == threadIdx.x % 4, high = token % 2 == 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool here = mine && token / 8 == half;
      key[half] = here ? placed(key[half], of_key, high) : key[half];
      value[half] = here ? placed(value[half], of_value, high) : value[half];
    }
  }
  __device__ __forceinline__ static float of(uint32_t pair, int i) { return i == 0 ? low_bf16(pair) : high_bf16(pair); }

 private:
  __device__ __forceinline__ static uint32_t placed(uint32_t pair, float scale, bool high) {
    const uint32_t bits = __float_as_uint(scale) >> 16;
    return high ? (pair & 0xffffu) | bits << 16 : (pair & 0xffff0000u) | bits;
  }
};

}  // namespace vireo::cuda
