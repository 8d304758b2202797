// Both sides of a product of few rows whose weights come through a ring of stages: 8 outputs by 1024 inputs each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/gemv.cuh"
#include "cuda/sm90/ring.cuh"

namespace vireo::cuda {

inline constexpr int kStageSteps = 16;  // of 64 inputs: two per warp
inline constexpr int kStageIn = kStageSteps * kStep;
// Bytes from a row of a stage to the next: reads of two rows meet no bank twice.
inline constexpr int kWeightPitch = kStageIn * 2 + 64;
inline constexpr int kWeightStageBytes = kTileOuts * kWeightPitch;
static_assert(kUserWarps * 2 == kStageSteps);

// The tiles of a product that are a block's: first, first + step, ...
struct Tiles {
  int first, step, end;
};

__device__ __forceinline__ int tiles_of(int out) {
  return (out + kTileOuts - 1) / kTileOuts;
}

// Sends for the weights of all tiles of the block, stage after stage.
template <bool kNamed>
[[maybe_unused]] __device__ __forceinline__ void send_weights(const bf16* w, int stride, int out, Tiles tiles,
                                                              Ring<kNamed>& ring) {
  using R = Ring<kNamed>;
  constexpr int kRows = kTileOuts / R::kCopyWarps;  // of a copying warp
  const int lane = threadIdx.x % 32, warp = (threadIdx.x - R::kAllUsers) / 32, row = warp * kRows + lane;
  const uint64_t policy = read_once();
#pragma unroll 1
  for (int tile = tiles.first; tile < tiles.end; tile += tiles.step) {
    const int rows = min(kTileOuts, out - tile * kTileOuts);
    const char* from = reinterpret_cast<const char*>(w + (int64_t{tile} * kTileOuts + min(row, rows - 1)) * stride);
#pragma unroll 1
    for (int in = 0; in < stride; in += kStageIn) {
      const uint32_t bytes = min(kStageIn, stride - in) * 2;
      ring.wait_empty();
      if (R::kThrottles) ring.wait_in_flight(ring.most_in_flight);
      if (warp == 0 && lane == 0) expect_bytes(ring.full(), bytes * rows);
      if (R::kCopyWarps == 1) __syncwarp();
      if (lane < kRows && row < rows)
        copy_bulk(ring.address() + row * kWeightPitch, from + in * 2, bytes, ring.full(), policy);
      ring.next();
    }
  }
}

// Bytes of staged rows. Whole stages are read, and what lies behind the end of a row is thrown away: nothing else may lie there.
__host__ __device__ inline constexpr int staged_bytes(int rows, int padded) {
  const int whole = (padded + kStageIn - 1) / kStageIn * kStageIn;
  const int end = whole * 2 > staged_stride(padded) ? whole * 2 : staged_stride(padded);
  return (rows - 1) * staged_stride(padded) + end;
}

// What the users of a block need beside the ring.
struct ProductRoom {
  char* staged;  // the rows of x
  float* parts;  // of the warps, for two groups of tiles
};

// `group` tiles of a block are finished together.
__host__ __device__ inline constexpr int parts_bytes(int group, int rows, int teams) {
  return 2 * teams * group * kUserWarps * kTileOuts * rows * 4;
}

// What a warp multiplies at once: 16 bytes of this lane's output and row, kPieces times 32 inputs. Rows 8 to 15 of the
// operand are nobody's, so that those 16 bytes, staged with the middle swapped, can be the operand as they are: the first two pairs of
// inputs meet theirs as rows 0 to 7 of one product, the others as rows 8 to 15 of another.
template <int kPieces>
struct Operands {
  uint4 w[kPieces], x[kPieces];

  __device__ __forceinline__ void load(uint32_t w_at, uint32_t x_at, bool has_row) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      w[i] = load_shared(w_at + i * 64);
      x[i] = load_shared_or_zeros(x_at + i * 64, has_row);
    }
  }
  // What lies behind the end of a row was neither copied nor staged; `left` inputs are there from the lane's first.
  __device__ __forceinline__ void clear_behind(int left) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (i * 32 >= left) w[i] = x[i] = {0, 0, 0, 0};
    }
  }
  __device__ __forceinline__ void multiply(float (&sums)[2][4]) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint32_t operand[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
      multiply_add(sums[0], operand, w[i].x, w[i].y);
      multiply_add(sums[1], operand, w[i].z, w[i].w);
    }
  }
};

// One tile: the warp's sums go to its part. Those of row r and output o lie at [r][.][o]. Of its four pieces of a stage kPieces are read at
// once. Sums of even and of odd stages are two, and become one at the end, so that two teams, of which each has every other stage of the
// ring, get the same bits as one. `before` is the number of stages before the tile.
template <int kPieces, int kGroup, bool kNamed>
[[maybe_unused]] __device__ __forceinline__ void multiply_tile(uint32_t my_w, uint32_t my_x, int my_in, int stride,
                                                               int rows, int team, int before, Ring<kNamed>& ring,
                                                               float* parts, int part) {
  constexpr bool kTeams = Ring<kNamed>::kTeams > 1;
  const int lane = threadIdx.x % 32, first = kTeams ? (before + team) % 2 : 0;
  const bool has_row = lane / 4 < rows;
  float sums[kTeams ? 1 : 2][2][4] = {};
  const auto multiply = [&](int in, float (&to)[2][4]) {
    ring.wait_full();
#pragma unroll
    for (int i = 0; i < 4; i += kPieces) {
      Operands<kPieces> o;
      o.load(ring.address() + my_w + i * 64, my_x + in * 2 + i * 64, has_row);
      if (in + kStageIn > stride) o.clear_behind(stride - in - my_in - i * 32);
      o.multiply(to);
    }
    ring.release();
    ring.next();
  };
#pragma unroll 1
  for (int in = 0; in < stride; in += 2 * kStageIn) {
    const bool two = in + kStageIn < stride;
    if (kTeams) {
      if (first == 1) ring.next();
      if (first == 0 || two) multiply(in + first * kStageIn, sums[0]);
      if (first == 0 && two) ring.next();
    } else {
      multiply(in, sums[0]);
      if (two) multiply(in + kStageIn, sums[kTeams ? 0 : 1]);
    }
  }
  if (!has_row) return;
  const auto sum = [&](int i) {
    const float even = sums[0][0][i] + sums[0][1][2 + i];
    return kTeams ? even : even + (sums[kTeams ? 0 : 1][0][i] + sums[kTeams ? 0 : 1][1][2 + i]);
  };
  float* to = parts + (first * kUserWarps + threadIdx.x / 32 % kUserWarps) * part;
  *reinterpret_cast<float2*>(to + lane / 4 * kGroup * kTileOuts + lane % 4 * 2) = {sum(0), sum(1)};
}

// x, what is added to, and the outputs in memory.
struct PlainEnds {
  using Old = float;
  static constexpr bool kFarArguments = true;
  // Waits for x and brings it to `staged`.
  __device__ __forceinline__ void stage(const GemvArguments& a, int /*team*/, int padded, char* staged) const {
    const auto norm = first_weights<32 / kUserWarps>(a, Crew<1>{kUsers});
    wait_for_previous();
    stage_rows<Staging::kSwapped>(a, norm, padded, kUsers, sum_of_users, staged);
  }
  // What is added to: sent for early, used late.
  __device__ __forceinline__ Old send_for_old(const GemvArguments& a, int row, int out) const {
    return static_cast<const float*>(a.y)[row * a.y_stride + out];
  }
  __device__ __forceinline__ float old(Old o, int) const { return o; }
  // By all lanes of a warp, `mine` says whose results count.
  __device__ __forceinline__ void finish(const GemvArguments& a, bool mine, int row, int out, float v, float up,
                                         float old) const {
    if (mine) cuda::finish(a, row, out, v, up, old);
  }
};

// Brings x and multiplies a block's tiles. kGroup tiles are finished together, user i the result i of them: output i % 8 of tile
// i / 8 % kGroup of the group, of row i / 8 / kGroup.
template <int kPieces, int kGroup, bool kNamed, typename Ends>
[[maybe_unused]] __device__ __forceinline__ void multiply_tiles(const GemvArguments& a, Tiles tiles, int padded,
                                                                int team, ProductRoom room, Ring<kNamed>& ring,
                                                                const Ends& ends) {
  static_assert(kGroup * kTileOuts * kGemvRows <= kUsers);
  constexpr int kTeams = Ring<kNamed>::kTeams;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % kUserWarps;
  const GemvArguments b = Ends::kFarArguments ? in_registers(a) : a;
  ends.stage(b, team, padded, room.staged);
  const auto all_meet = [] {
    if (kTeams > 1) {
      meet_all();
    } else {
      meet();
    }
  };
  all_meet();
  const int part = kTileOuts * kGroup * a.rows, stride = static_cast<int>(a.stride);
  const int my_in = warp * 2 * kStep + lane % 4 * 8;
  const uint32_t my_w = lane / 4 * kWeightPitch + my_in * 2;
  const uint32_t my_x = shared_address(room.staged) + min(lane / 4, a.rows - 1) * staged_stride(padded) + my_in * 2;
  const int stages = (stride + kStageIn - 1) / kStageIn;
  int turn = 0, before = 0;
#pragma unroll 1
  for (int group = tiles.first; group < tiles.end; group += kGroup * tiles.step, ++turn) {
    // Another warp each time, for who finishes falls behind.
    const int result = (threadIdx.x + turn * 32) % (kTeams * kUsers);
    const int my_tile = group + result / kTileOuts % kGroup * tiles.step, my_row = result / (kTileOuts * kGroup);
    const int my_out = my_tile * kTileOuts + result % kTileOuts;
    const bool mine = my_row < a.rows && my_tile < tiles.end && my_out < a.out, adds = mine && b.into == Into::kAdd;
    typename Ends::Old old = {};
    if (adds) old = ends.send_for_old(b, my_row, my_out);
    float* parts = room.parts + turn % 2 * kTeams * kUserWarps * part;
#pragma unroll 1
    for (int i = 0, tile = group; i < kGroup && tile < tiles.end; ++i, tile += tiles.step, before += stages) {
      multiply_tile<kPieces, kGroup>(my_w, my_x, my_in, stride, a.rows, team, before, ring, parts + i * kTileOuts, part);
    }
    // Parts are read before those two groups later are written: all meet in between.
    all_meet();
    if (result / 32 * 32 >= part) continue;
    const float* of = parts + min(result, part - 1);
    float v = 0;
#pragma unroll
    for (int w = 0; w < kUserWarps; ++w) {
      v += kTeams > 1 ? of[w * part] + of[(kUserWarps + w) * part] : of[w * part];
    }
    const float up = __shfl_down_sync(kAllLanes, v, 1);
    ends.finish(b, mine, my_row, my_out, v, up, adds ? ends.old(old, my_out) : 0.0f);
  }
}

}  // namespace vireo::cuda
