// Products with experts in a tier, for decode steps: a block per item and 16 outputs, whose warps share the inputs and copy the chunks to
// shared memory, several in flight.
// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "cuda/experts.cuh"
#include "cuda/tier_codes.cuh"

namespace vireo::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kDepth = 4;  // chunks in flight per warp
constexpr int kPartBytes = kWarps * kChunkOuts * static_cast<int>(sizeof(float));

// The item's row as bf16, larger by kCodedFactor, zeros up to `padded` columns and for kZeroBytes behind.
__device__ __forceinline__ void stage_item(const ExpertArguments& a, int64_t item, int padded, bf16* staged) {
  constexpr int kZeros = kZeroBytes / static_cast<int>(sizeof(bf16));
#pragma unroll 4
  for (int c = threadIdx.x; c < padded + kZeros; c += kWarps * 32) {
    store_float(staged + c, c < a.in ? expert_input(a, item, c) * kCodedFactor : 0.0f);
  }
}

template <Tier kTier>
__global__ void __launch_bounds__(kWarps * 32)
    coded_expert_kernel(ExpertArguments a, TierMatrix w, int64_t group_bytes) {
  constexpr int kBytes = kChunkBytes<kTier>;
  extern __shared__ uint4 shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, padded = w.chunks * kChunkIn;
  float* parts = reinterpret_cast<float*>(shared);  // of the warps
  bf16* staged = reinterpret_cast<bf16*>(parts + kWarps * kChunkOuts);
  const uint32_t x = shared_address(staged), zeros = x + padded * 2;
  const uint32_t ring = zeros + kZeroBytes + warp * kDepth * kBytes;
  let_next_start();
  wait_for_previous();
  const int64_t item = blockIdx.y;
  const uint8_t* tile = w.data + a.ids[item] * group_bytes + int64_t{blockIdx.x} * w.chunks * kBytes;
  uint32_t slot = ring;
  int ahead = warp;
  const auto fetch = [&] {
    if (ahead < w.chunks) copy_chunk<kTier>(slot, tile + int64_t{ahead} * kBytes, lane);
    ahead += kWarps;
    commit_copies();
    slot = slot == ring + (kDepth - 1) * kBytes ? ring : slot + kBytes;
  };
#pragma unroll 1
  for (int i = 0; i < kDepth; ++i) fetch();
  stage_item(a, item, padded, staged);
  __syncthreads();

  CodedSums<1> sums;
#pragma unroll 1
  for (int chunk = warp; chunk < w.chunks; chunk += kWarps) {
    wait_for_copies<kDepth - 1>();
    // Lanes read what others copied.
    __syncwarp();
    multiply_chunk<kTier>(slot, CodedInputs{x + chunk * kChunkIn * 2, zeros, 0, 1}, sums);
    __syncwarp();
    fetch();
  }
  const float part = sum_of_quad(sums.of[0], threadIdx.x % 32) * Decoder<kTier>::kUnit;
  if (lane % 4 < 2) parts[warp * kChunkOuts + lane % 2 * (kChunkOuts / 2) + lane / 4] = part;
  __syncthreads();
  if (warp > 0) return;
  float v = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) v += parts[i * kChunkOuts + lane % kChunkOuts];
  const float up = __shfl_down_sync(kAllLanes, v, 1);
  const int out = static_cast<int>(blockIdx.x) * kChunkOuts + lane;
  if (lane >= kChunkOuts || out >= a.out) return;
  float* y = a.y + item * a.scratch_stride;
  if (!a.silu_pairs) {
    y[out] = v;
  } else if (out % 2 == 0) {
    y[out / 2] = silu(v) * up;
  }
}

template <Tier kTier>
void run(const Queue& queue, const TierMatrix& w, const ExpertArguments& a, unsigned items) {
  static SharedMemory memory;
  const auto kernel = coded_expert_kernel<kTier>;
  memory.allow(reinterpret_cast<const void*>(kernel), queue.block_shared_bytes);
  const int bytes = kPartBytes + w.chunks * kChunkIn * 2 + kZeroBytes + kWarps * kDepth * kChunkBytes<kTier>;
  CHECK(bytes <= queue.block_shared_bytes);
  const unsigned tiles = static_cast<unsigned>((a.out + kChunkOuts - 1) / kChunkOuts);
  launch(queue, kernel, dim3(tiles, items), kWarps * 32, static_cast<size_t>(bytes), a, w,
         int64_t{tiles} * w.chunks * kChunkBytes<kTier>);
}

}  // namespace

void multiply_coded_experts(const Queue& queue, const TierMatrix& w, const ExpertArguments& a, unsigned items) {
  with_tier(w.tier, [&](auto tier) { run<tier()>(queue, w, a, items); });
}

}  // namespace vireo::cuda
