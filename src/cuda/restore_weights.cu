// Matrices that have codes alone, as BF16 for products of many rows: what the codes stand for, rounded once.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "cuda/kernels.h"
#include "cuda/tier_codes.cuh"

namespace vireo::cuda {
namespace {

constexpr int kWarps = 4;

// Two elements of a product's operand, times their group's scale. In two steps: no float is as large as the factor between codes and
// numbers.
template <Tier kTier>
__device__ __forceinline__ uint32_t restored(uint32_t pair, float scale) {
  const auto number = [&](float v) { return v * kCodedFactor * Decoder<kTier>::kUnit * scale; };
  return pack_bf16(number(low_bf16(pair)), number(high_bf16(pair)));
}

// grid.x: tiles of 16 outputs; a warp takes chunks in turns. A lane has, of a chunk, all of two groups of two outputs.
template <Tier kTier>
__global__ void __launch_bounds__(kWarps * 32)
    restore_kernel(TierMatrix w, int first_tile, int outs, int in, bf16* to, int stride) {
  constexpr int kWords = kHasNibbles<kTier> ? 1 : 2;  // of a product
  let_next_start();
  wait_for_previous();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t tile = first_tile + blockIdx.x;
  for (int chunk = warp; chunk < w.chunks; chunk += kWarps) {
    const uint8_t* from = w.data + (tile * w.chunks + chunk) * kChunkBytes<kTier>;
    const uint8_t* scales = from + kChunkBytes<kTier> - kChunkScaleBytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t words[4 * kWords];
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const uint4 codes = load_stream(from + (half * kWords + i) * 512 + lane * 16);
        words[4 * i] = codes.x;
        words[4 * i + 1] = codes.y;
        words[4 * i + 2] = codes.z;
        words[4 * i + 3] = codes.w;
      }
      const int group = lane % 4 + half * 4;
      // Scales lie by the lane that has two groups of the output.
      const bf16* of_group = reinterpret_cast<const bf16*>(scales) + (lane / 4 * 4 + group / 2) * 4 + group % 2;
      const float scale[2] = {load_float(of_group), load_float(of_group + 2)};
      uint32_t elements[2][8];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        uint32_t a[4];
        Decoder<kTier>::decode(words + j * kWords, a);
#pragma unroll
        for (int i = 0; i < 4; ++i) elements[i % 2][2 * j + i / 2] = restored<kTier>(a[i], scale[i % 2]);
      }
      const int column = chunk * kChunkIn + group * static_cast<int>(kTierGroup);
#pragma unroll
      for (int o = 0; o < 2; ++o) {
        const int row = static_cast<int>(blockIdx.x) * kChunkOuts + lane / 4 + o * 8;
        if (row >= outs) continue;
#pragma unroll
        for (int piece = 0; piece < 2; ++piece) {
          if (column + piece * 8 >= stride) continue;
          uint32_t* e = elements[o] + piece * 4;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            // Behind the last input are zeros.
            if (column + piece * 8 + 2 * i >= in) e[i] = 0;
            if (column + piece * 8 + 2 * i + 1 >= in) e[i] &= 0xffffu;
          }
          *reinterpret_cast<uint4*>(to + int64_t{row} * stride + column + piece * 8) = {e[0], e[1], e[2], e[3]};
        }
      }
    }
  }
}

template <Tier kTier>
void run(const Queue& queue, const CudaLinear& from, int64_t first, const CudaLinear& to) {
  launch(queue, restore_kernel<kTier>, static_cast<unsigned>((to.out + kChunkOuts - 1) / kChunkOuts), kWarps * 32, 0,
         from.coded, static_cast<int>(first / kChunkOuts), static_cast<int>(to.out), static_cast<int>(to.in),
         to.weights, static_cast<int>(to.stride));
}

}  // namespace

void restore_weights(const Queue& queue, const CudaLinear& from, int64_t first, const CudaLinear& to) {
  CHECK(first % kChunkOuts == 0 && first + to.out <= from.out && to.in == from.in);
  with_tier(from.coded.tier, [&](auto tier) { run<tier()>(queue, from, first, to); });
}

}  // namespace vireo::cuda
