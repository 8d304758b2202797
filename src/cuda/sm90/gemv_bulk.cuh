// Both sides of a product of few rows whose weights come through a ring of stages: 8 outputs by 1024 inputs each, in a tier 16.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

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
  static constexpr bool kHolds = false;
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
  template <typename Work>
  __device__ __forceinline__ void in_tier(Work work) const {
    work(*this);
  }
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

// Weights in one tier, a warp's share: a chunk of each stage.
template <Tier kTier, int kRows>
struct TierWeights {
  static constexpr Staging kStaging = Staging::kCoded;
  static constexpr int kOuts = kChunkOuts, kInputs = kStageChunks * kChunkIn;
  static constexpr int kMostRows = kRows;
  static constexpr bool kHolds = kRows == 1;
  static constexpr Tier kOf = kTier;
  using Sums = CodedSums<kRows>;
  int columns, rows, row_bytes;
  uint32_t my_chunk, my_x, zeros;

  // `a.rows` rows of x lie at `staged`.
  __device__ __forceinline__ TierWeights(const GemvArguments& a, const TierMatrix& w, uint32_t staged, int bytes)
      : columns(w.chunks * kChunkIn), rows(a.rows), row_bytes(bytes), zeros(staged + columns * 2) {
    const int warp = threadIdx.x / 32 % kUserWarps;
    my_chunk = warp * kChunkBytes<kTier>;
    my_x = staged + warp * kChunkIn * 2;
  }
  // In which sums count.
  __device__ __forceinline__ float unit() const { return Decoder<kTier>::kUnit; }
  template <typename Work>
  __device__ __forceinline__ void in_tier(Work work) const {
    work(*this);
  }
  // `in` inputs are before the stage. Of a row that ends before its last stage not all warps have a chunk there.
  __device__ __forceinline__ bool has_chunk(int in) const {
    return in + static_cast<int>(threadIdx.x / 32 % kUserWarps) * kChunkIn < columns;
  }
  __device__ __forceinline__ CodedInputs inputs(int in) const { return {my_x + in * 2, zeros, row_bytes, rows}; }
  __device__ __forceinline__ void multiply(uint32_t stage, int in, Sums& to) const {
    if (has_chunk(in)) multiply_chunk<kTier>(stage + my_chunk, inputs(in), to);
  }
  template <bool kBoth>
  __device__ __forceinline__ void store(const Sums& even, const Sums& odd, float* to, int pitch) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (kRows > 1 && r >= rows) break;
      float v = sum_of_quad(even.of[r], lane);
      if (kBoth) v += sum_of_quad(odd.of[r], lane);
      if (stores(lane)) to[r * pitch + sum_of_lane(lane)] = v;
    }
  }
  // Of a tile's sums two lanes of four have one each.
  __device__ __forceinline__ static bool stores(int lane) { return lane % 4 < 2; }
  __device__ __forceinline__ static int sum_of_lane(int lane) { return lane % 2 * (kOuts / 2) + lane / 4; }
};

// Weights in whichever tier.
template <int kRows>
struct CodedWeights {
  static constexpr Staging kStaging = Staging::kCoded;
  static constexpr int kOuts = kChunkOuts, kInputs = kStageChunks * kChunkIn;
  static constexpr int kMostRows = kRows;
  const GemvArguments& a;
  TierMatrix w;
  int columns, row_bytes;
  uint32_t staged;

  __device__ __forceinline__ CodedWeights(const GemvArguments& arguments, const TierMatrix& matrix, uint32_t x, int bytes)
      : a(arguments), w(matrix), columns(w.chunks * kChunkIn), row_bytes(bytes), staged(x) {}
  __device__ __forceinline__ float unit() const {
    const Tier tier = w.tier;
    return tier == Tier::kInt8   ? Decoder<Tier::kInt8>::kUnit
           : tier == Tier::kW8   ? Decoder<Tier::kW8>::kUnit
           : tier == Tier::kInt4 ? Decoder<Tier::kInt4>::kUnit
                                 : Decoder<Tier::kW4>::kUnit;
  }
  // work(weights) with those of the tier: once for many stages, because to branch takes long.
  template <typename Work>
  __device__ __forceinline__ void in_tier(Work work) const {
    switch (w.tier) {
      case Tier::kInt8:
        return work(TierWeights<Tier::kInt8, kRows>(a, w, staged, row_bytes));
      case Tier::kW8:
        return work(TierWeights<Tier::kW8, kRows>(a, w, staged, row_bytes));
      case Tier::kInt4:
        return work(TierWeights<Tier::kInt4, kRows>(a, w, staged, row_bytes));
      default:
        return work(TierWeights<Tier::kW4, kRows>(a, w, staged, row_bytes));
    }
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

// The tiles of a group, each with the one stage that is the team's: its inputs stay in registers.
template <int kGroup, bool kNamed, typename Weights>
[[maybe_unused]] __device__ __forceinline__ void multiply_held(const Weights& weights, int team, int tiles,
                                                               Ring<kNamed>& ring, float* parts, int part) {
  const int in = team * Weights::kInputs;
  // A warp without a chunk multiplies the first one with zeros.
  const bool has_chunk = weights.has_chunk(in);
  const HeldInputs x(weights.inputs(has_chunk ? in : 0), has_chunk);
  // What depends on the lane is worked out anew in each turn, unless another lane might have it.
  const int lane = __shfl_sync(kAllLanes, threadIdx.x % 32, threadIdx.x % 32);
  const uint32_t my_chunk = has_chunk ? weights.my_chunk : 0;
  float* to = parts + (team * kUserWarps + threadIdx.x / 32 % kUserWarps) * part + Weights::sum_of_lane(lane);
#pragma unroll 1
  for (int i = 0; i < tiles; ++i, to += Weights::kOuts) {
    typename Weights::Sums sums;
    ring.wait_full();
    multiply_chunk<Weights::kOf>(ring.address() + my_chunk, x, sums);
    ring.release();
    ring.next_of_team();
    const float v = sum_of_quad(sums.of[0], lane);
    if (Weights::stores(lane)) *to = v;
  }
}

// Which result of a group of tiles is a thread's.
struct Result {
  int number, row, out;
  bool mine;  // there is one
};

// x, what is added to, and the outputs in memory.
struct PlainEnds {
  static constexpr bool kFarArguments = true;
  // What becomes of a result, as far as it is known before the result is.
  struct Later {
    Result result;
    float old;
  };
  // Waits for x and brings it to `staged`.
  template <Staging kStaging>
  __device__ __forceinline__ void stage(const GemvArguments& a, int /*team*/, int padded, char* staged) const {
    const auto norm = first_weights<32 / kUserWarps>(a, Crew<1>{kUsers});
    wait_for_previous();
    stage_rows<kStaging>(a, norm, padded, kUsers, sum_of_users, staged);
  }
  // Before x is there,
  __device__ __forceinline__ Later prepare(const GemvArguments&, const Result& result) const { return {result, 0}; }
  // when it is,
  __device__ __forceinline__ void send_for_old(const GemvArguments& a, Later& later) const {
    const Result& r = later.result;
    if (r.mine && a.into == Into::kAdd) later.old = static_cast<const float*>(a.y)[r.row * a.y_stride + r.out];
  }
  // and at the end, by all lanes of a warp.
  __device__ __forceinline__ void finish(const GemvArguments& a, const Later& later, float v) const {
    const Result& r = later.result;
    const float up = __shfl_down_sync(kAllLanes, v, 1);
    if (r.mine) cuda::finish(a, r.row, r.out, v, up, later.old);
  }
  // By one warp, when the block's last results are.
  __device__ __forceinline__ void all_finished() const {}
};

// Brings x and multiplies a block's tiles, of which there is one at least. kGroup tiles are finished together, user i the result i of them:
// of tiles of 8 outputs output i % 8 of tile i / 8 % kGroup of the group, of row i / 8 / kGroup.
// Matrix: what Weights are made of.
template <typename Weights, int kGroup, typename Matrix, bool kNamed, typename Ends>
[[maybe_unused]] __device__ __forceinline__ void multiply_tiles(const GemvArguments& a, const Matrix& matrix,
                                                                Tiles tiles, int padded, int team, ProductRoom room,
                                                                Ring<kNamed>& ring, const Ends& ends) {
  constexpr int kOuts = Weights::kOuts, kOfGroup = kOuts * kGroup;
  static_assert(kOfGroup * Weights::kMostRows <= kUsers);
  constexpr int kTeams = Ring<kNamed>::kTeams;
  const auto all_meet = [] {
    if (kTeams > 1) {
      meet_all();
    } else {
      meet();
    }
  };
  // What does not need x comes before it, when there is time.
  const GemvArguments b = Ends::kFarArguments ? in_registers(a) : a;
  const Weights weights(a, matrix, shared_address(room.staged), staged_stride(padded));
  const float unit = weights.unit();
  const int part = kOfGroup * (Weights::kMostRows > 1 ? a.rows : 1);
  const int stages = (weights.columns + Weights::kInputs - 1) / Weights::kInputs;
  // Another warp finishes each time, for who does falls behind.
  const auto result_of = [&](int group, int turn) {
    const int number = (threadIdx.x + turn * 32) % (kTeams * kUsers), row = number / kOfGroup;
    const int tile = group + number / kOuts % kGroup * tiles.step, out = tile * kOuts + number % kOuts;
    return Result{number, row, out, number < part && tile < tiles.end && out < a.out};
  };
  // The tiles of a group.
  const auto count_of = [&](int group) { return min(kGroup, (tiles.end - group + tiles.step - 1) / tiles.step); };
  Result result = result_of(tiles.first, 0);
  int count = count_of(tiles.first);
  auto later = ends.prepare(b, result);
  if (team == 1) ring.next();
  ends.template stage<Weights::kStaging>(b, team, padded, room.staged);
  // Between the rows there is room.
  if (Weights::kStaging == Staging::kCoded && threadIdx.x < kZeroBytes / 16)
    reinterpret_cast<uint4*>(room.staged + padded * 2)[threadIdx.x] = uint4{0, 0, 0, 0};
  all_meet();
  int before = 0;
#pragma unroll 1
  for (int group = tiles.first, turn = 0;;) {
    ends.send_for_old(b, later);
    float* parts = room.parts + turn % 2 * kTeams * kUserWarps * part;
    weights.in_tier([&](const auto& of) {
      if constexpr (kTeams > 1 && std::remove_reference_t<decltype(of)>::kHolds) {
        if (stages == kTeams) return multiply_held<kGroup>(of, team, count, ring, parts, part);
      }
#pragma unroll 1
      for (int i = 0; i < count; ++i) multiply_tile<kGroup>(of, team, before + i * stages, ring, parts + i * kOuts, part);
    });
    before += count * stages;
    group += kGroup * tiles.step;
    const bool is_last = group >= tiles.end;
    // Parts are read before those two groups later are written: all meet in between.
    all_meet();
    if (result.number / 32 * 32 < part) {
      const float* of = parts + min(result.number, part - 1);
      float v = 0;
#pragma unroll
      for (int w = 0; w < kUserWarps; ++w) {
        v += kTeams > 1 ? of[w * part] + of[(kUserWarps + w) * part] : of[w * part];
      }
      ends.finish(b, later, v * unit);
      if (result.number < 32 && is_last) ends.all_finished();
    }
    if (is_last) break;
    count = count_of(group);
    result = result_of(group, ++turn);
    later = ends.prepare(b, result);
  }
  // Behind the last stage, whose ever it was.
  if (kTeams > 1 && (before + team) % 2 == 1) ring.back();
}

}  // namespace vireo::cuda
