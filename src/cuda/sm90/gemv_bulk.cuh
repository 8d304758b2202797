// Both sides of a product of few rows whose weights come through a ring of stages: 8 outputs by 1024 inputs each, in a tier 16.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/gemv.cuh"
#include "cuda/sm90/ring.cuh"
#include "cuda/tier_codes.cuh"

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

__device__ __forceinline__ int tiles_of(int out, int tile_outs = kTileOuts) {
  return (out + tile_outs - 1) / tile_outs;
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

// A stage of a tier: chunks, one per warp, in one piece.
inline constexpr int kStageChunks = kUserWarps;
inline constexpr int tier_stage_bytes(Tier tier) {
  return kStageChunks * chunk_bytes(tier);
}

__device__ __forceinline__ int chunk_bytes_of(Tier tier) {
  return tier == Tier::kInt4 || tier == Tier::kW4 ? kChunkBytes<Tier::kInt4> : kChunkBytes<Tier::kInt8>;
}

// The same for a matrix in a tier.
template <bool kNamed>
[[maybe_unused]] __device__ __forceinline__ void send_chunks(const TierMatrix& w, Tiles tiles, Ring<kNamed>& ring) {
  using R = Ring<kNamed>;
  constexpr int kCopies = 4, kOfCopy = kStageChunks / kCopies, kOfWarp = kCopies / R::kCopyWarps;
  const int lane = threadIdx.x % 32, warp = (threadIdx.x - R::kAllUsers) / 32, bytes = chunk_bytes_of(w.tier);
  const int first = (warp * kOfWarp + lane) * kOfCopy;  // chunk that this lane sends for, and those after it
  const uint64_t policy = read_once();
#pragma unroll 1
  for (int tile = tiles.first; tile < tiles.end; tile += tiles.step) {
    const uint8_t* from = w.data + int64_t{tile} * w.chunks * bytes;
#pragma unroll 1
    for (int chunk = 0; chunk < w.chunks; chunk += kStageChunks) {
      const int count = min(kStageChunks, w.chunks - chunk), mine = min(kOfCopy, count - first);
      ring.wait_empty();
      if (R::kThrottles) ring.wait_in_flight(ring.most_in_flight);
      if (warp == 0 && lane == 0) expect_bytes(ring.full(), count * bytes);
      if (R::kCopyWarps == 1) __syncwarp();
      if (lane < kOfWarp && mine > 0)
        copy_bulk(ring.address() + first * bytes, from + (chunk + first) * bytes, mine * bytes, ring.full(), policy);
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

// Of a tier only chunks that there are are read.
__host__ __device__ inline constexpr int coded_staged_bytes(int rows, int chunks) {
  return rows * staged_stride(chunks * kChunkIn);
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

// Weights as the checkpoint has them, a lane's share: of its four pieces of a stage kPieces are read at once.
template <int kPieces, int kRows>
struct PlainWeights {
  static constexpr Staging kStaging = Staging::kSwapped;
  static constexpr int kOuts = kTileOuts, kInputs = kStageIn;  // of a stage
  static constexpr int kMostRows = kRows;
  struct Sums {
    float of[2][4] = {};
  };
  int columns, my_in;
  uint32_t my_w, my_x;
  bool has_row;

  // `a.rows` rows of x lie at `staged`.
  __device__ __forceinline__ PlainWeights(const GemvArguments& a, int stride, uint32_t staged, int row_bytes)
      : columns(stride), has_row(threadIdx.x % 32 / 4 < a.rows) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % kUserWarps;
    my_in = warp * 2 * kStep + lane % 4 * 8;
    my_w = lane / 4 * kWeightPitch + my_in * 2;
    my_x = staged + min(lane / 4, a.rows - 1) * row_bytes + my_in * 2;
  }
  __device__ __forceinline__ float unit() const { return 1; }
  // `in` inputs are before the stage.
  __device__ __forceinline__ void multiply(uint32_t stage, int in, Sums& to) const {
#pragma unroll
    for (int i = 0; i < 4; i += kPieces) {
      Operands<kPieces> o;
      o.load(stage + my_w + i * 64, my_x + in * 2 + i * 64, has_row);
      if (in + kStageIn > columns) o.clear_behind(columns - in - my_in - i * 32);
      o.multiply(to.of);
    }
  }
  // Sums of row r and output o to [r][.][o], `pitch` from a row to the next. kBoth: the second ones are added.
  template <bool kBoth>
  __device__ __forceinline__ void store(const Sums& even, const Sums& odd, float* to, int pitch) const {
    const int lane = threadIdx.x % 32;
    if (!has_row) return;
    const auto sum = [&](int i) {
      const float first = even.of[0][i] + even.of[1][2 + i];
      return kBoth ? first + (odd.of[0][i] + odd.of[1][2 + i]) : first;
    };
    *reinterpret_cast<float2*>(to + lane / 4 * pitch + lane % 4 * 2) = {sum(0), sum(1)};
  }
};

// Weights in a tier, a warp's share: a chunk of each stage.
template <int kRows>
struct CodedWeights {
  static constexpr Staging kStaging = Staging::kCoded;
  static constexpr int kOuts = kChunkOuts, kInputs = kStageChunks * kChunkIn;
  static constexpr int kMostRows = kRows;
  using Sums = CodedSums<kRows>;
  Tier tier;
  int columns, rows, row_bytes;
  uint32_t staged;

  __device__ __forceinline__ CodedWeights(const GemvArguments& a, const TierMatrix& w, uint32_t x, int bytes)
      : tier(w.tier), columns(w.chunks * kChunkIn), rows(a.rows), row_bytes(bytes), staged(x) {}
  // In which sums count.
  __device__ __forceinline__ float unit() const {
    return tier == Tier::kInt8   ? Decoder<Tier::kInt8>::kUnit
           : tier == Tier::kW8   ? Decoder<Tier::kW8>::kUnit
           : tier == Tier::kInt4 ? Decoder<Tier::kInt4>::kUnit
                                 : Decoder<Tier::kW4>::kUnit;
  }
  __device__ __forceinline__ void multiply(uint32_t stage, int in, Sums& to) const {
    switch (tier) {
      case Tier::kInt8:
        return multiply_mine<Tier::kInt8>(stage, in, to);
      case Tier::kW8:
        return multiply_mine<Tier::kW8>(stage, in, to);
      case Tier::kInt4:
        return multiply_mine<Tier::kInt4>(stage, in, to);
      default:
        return multiply_mine<Tier::kW4>(stage, in, to);
    }
  }
  template <bool kBoth>
  __device__ __forceinline__ void store(const Sums& even, const Sums& odd, float* to, int pitch) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (kRows > 1 && r >= rows) break;
      float v = sum_of_quad(even.of[r]);
      if (kBoth) v += sum_of_quad(odd.of[r]);
      if (lane % 4 < 2) to[r * pitch + lane % 2 * (kOuts / 2) + lane / 4] = v;
    }
  }

 private:
  template <Tier kTier>
  __device__ __forceinline__ void multiply_mine(uint32_t stage, int in, Sums& to) const {
    const int warp = threadIdx.x / 32 % kUserWarps, first = in + warp * kChunkIn;
    if (first < columns)
      multiply_chunk<kTier>(stage + warp * kChunkBytes<kTier>, {staged + first * 2, staged + columns * 2, row_bytes, rows},
                            to);
  }
};

// One tile: the warp's sums go to its part. Sums of even and of odd stages are two, and become one at the end, so that two teams, of which
// each has every other stage of the ring, get the same bits as one. `before` is the number of stages before the tile. The ring is
// at the team's next stage.
template <int kGroup, bool kNamed, typename Weights>
[[maybe_unused]] __device__ __forceinline__ void multiply_tile(const Weights& weights, int team, int before,
                                                               Ring<kNamed>& ring, float* parts, int part) {
  constexpr bool kTeams = Ring<kNamed>::kTeams > 1;
  const int first = kTeams ? (before + team) % 2 : 0;
  typename Weights::Sums sums[kTeams ? 1 : 2];
  const auto multiply = [&](int in, typename Weights::Sums& to) {
    ring.wait_full();
    weights.multiply(ring.address(), in, to);
    ring.release();
    ring.next_of_team();
  };
#pragma unroll 1
  for (int in = first * Weights::kInputs; in < weights.columns; in += 2 * Weights::kInputs) {
    multiply(in, sums[0]);
    if (!kTeams && in + Weights::kInputs < weights.columns) multiply(in + Weights::kInputs, sums[kTeams ? 0 : 1]);
  }
  float* to = parts + (first * kUserWarps + threadIdx.x / 32 % kUserWarps) * part;
  weights.template store<!kTeams>(sums[0], sums[kTeams ? 0 : 1], to, kGroup * Weights::kOuts);
}

// x, what is added to, and the outputs in memory.
struct PlainEnds {
  using Old = float;
  static constexpr bool kFarArguments = true;
  // Waits for x and brings it to `staged`.
  template <Staging kStaging>
  __device__ __forceinline__ void stage(const GemvArguments& a, int /*team*/, int padded, char* staged) const {
    const auto norm = first_weights<32 / kUserWarps>(a, Crew<1>{kUsers});
    wait_for_previous();
    stage_rows<kStaging>(a, norm, padded, kUsers, sum_of_users, staged);
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
  // By one warp, when the block's last results are.
  __device__ __forceinline__ void all_finished() const {}
};

// Brings x and multiplies a block's tiles. kGroup tiles are finished together, user i the result i of them: of tiles of 8 outputs output i % 8
// of tile i / 8 % kGroup of the group, of row i / 8 / kGroup.
// Matrix: what Weights are made of.
template <typename Weights, int kGroup, typename Matrix, bool kNamed, typename Ends>
[[maybe_unused]] __device__ __forceinline__ void multiply_tiles(const GemvArguments& a, const Matrix& matrix,
                                                                Tiles tiles, int padded, int team, ProductRoom room,
                                                                Ring<kNamed>& ring, const Ends& ends) {
  constexpr int kOuts = Weights::kOuts;
  static_assert(kGroup * kOuts * Weights::kMostRows <= kUsers);
  constexpr int kTeams = Ring<kNamed>::kTeams;
  const GemvArguments b = Ends::kFarArguments ? in_registers(a) : a;
  ends.template stage<Weights::kStaging>(b, team, padded, room.staged);
  // Between the rows there is room.
  if (Weights::kStaging == Staging::kCoded && threadIdx.x < kZeroBytes / 16)
    reinterpret_cast<uint4*>(room.staged + padded * 2)[threadIdx.x] = uint4{0, 0, 0, 0};
  const auto all_meet = [] {
    if (kTeams > 1) {
      meet_all();
    } else {
      meet();
    }
  };
  all_meet();
  const int part = kOuts * kGroup * a.rows;
  const Weights weights(a, matrix, shared_address(room.staged), staged_stride(padded));
  const int stages = (weights.columns + Weights::kInputs - 1) / Weights::kInputs;
  if (team == 1) ring.next();
  int turn = 0, before = 0;
#pragma unroll 1
  for (int group = tiles.first; group < tiles.end; group += kGroup * tiles.step, ++turn) {
    // Another warp each time, for who finishes falls behind.
    const int result = (threadIdx.x + turn * 32) % (kTeams * kUsers);
    const int my_tile = group + result / kOuts % kGroup * tiles.step, my_row = result / (kOuts * kGroup);
    const int my_out = my_tile * kOuts + result % kOuts;
    const bool mine = my_row < a.rows && my_tile < tiles.end && my_out < a.out, adds = mine && b.into == Into::kAdd;
    typename Ends::Old old = {};
    if (adds) old = ends.send_for_old(b, my_row, my_out);
    float* parts = room.parts + turn % 2 * kTeams * kUserWarps * part;
#pragma unroll 1
    for (int i = 0, tile = group; i < kGroup && tile < tiles.end; ++i, tile += tiles.step, before += stages) {
      multiply_tile<kGroup>(weights, team, before, ring, parts + i * kOuts, part);
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
    v *= weights.unit();
    const float up = __shfl_down_sync(kAllLanes, v, 1);
    ends.finish(b, mine, my_row, my_out, v, up, adds ? ends.old(old, my_out) : 0.0f);
    if (result < 32 && group + kGroup * tiles.step >= tiles.end) ends.all_finished();
  }
  // Behind the last stage, whose ever it was.
  if (kTeams > 1 && (before + team) % 2 == 1) ring.back();
}

}  // namespace vireo::cuda
