// Stages of shared memory that one warp of a block fills with bulk copies and the others, the users, empty, in the same order
// (compute capability 9.0).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/bulk_copy.cuh"

namespace vireo::cuda {

inline constexpr int kUserWarps = 8, kUsers = kUserWarps * 32;  // of a team
inline constexpr int kMostTeams = 2;

// Named barriers of a block: 0 is __syncthreads, then those of the teams, the one of both, and those that say that a stage is empty.
inline constexpr int kTeamBarrier = 1, kBothBarrier = kTeamBarrier + kMostTeams, kFirstEmptyBarrier = kBothBarrier + 1;
inline constexpr int kMostStages = 16 - kFirstEmptyBarrier;

// By all lanes of a warp together, as those of a warp that multiplied are.
__device__ __forceinline__ void sync_barrier(int id, int threads) {
  __syncwarp();
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_barrier(int id, int threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// The users of a team wait for each other.
__device__ __forceinline__ void meet(int team = 0) {
  sync_barrier(kTeamBarrier + team, kUsers);
}
// Both teams.
__device__ __forceinline__ void meet_all() {
  sync_barrier(kBothBarrier, kMostTeams * kUsers);
}

// Of stages in shared memory, behind up to as many bytes that are left out: bulk copies to places in between bring a tenth fewer bytes
// a second.
inline constexpr int kStageAlignment = 128;

struct RingBarriers {
  Barrier full[kMostStages], empty[kMostStages];
};

// A side's place in the ring. That a stage is empty is said on a named barrier, which costs the users least, or, where several blocks
// share a multiprocessor, which has few of those, on one in shared memory. Copying warps share the copies of a stage: it takes
// time to send for one.
template <bool kNamed>
struct Ring {
  static constexpr int kCopyWarps = kNamed ? 4 : 1, kTeams = kNamed ? 2 : 1;
  static constexpr bool kThrottles = kNamed;
  static constexpr int kAllUsers = kTeams * kUsers;  // the first threads of a block; the copying warps follow
  static constexpr int kThreads = kAllUsers + kCopyWarps * 32;
  static constexpr int kOfStage = kUsers + kCopyWarps * 32;  // threads: a stage is used by one team

  BarrierAddress full_barriers, empty_barriers;
  uint32_t memory;
  int stage_bytes, stages;
  int most_in_flight = kMostStages;  // stages
  int stage = 0;
  uint32_t round = 0;

  __device__ __forceinline__ Ring(const RingBarriers& barriers, uint32_t at, int bytes, int count)
      : full_barriers(shared_address(barriers.full)),
        empty_barriers(shared_address(barriers.empty)),
        memory((at + kStageAlignment - 1) / kStageAlignment * kStageAlignment),
        stage_bytes(bytes),
        stages(count) {
    // What was measured has all four; without the last two the compiler makes other code.
    keep_in_registers(full_barriers);
    keep_in_registers(memory);
    keep_in_registers(stage_bytes);
    keep_in_registers(stages);
  }

  // By one thread, before a __syncthreads.
  __device__ __forceinline__ void start() {
    for (int s = 0; s < stages; ++s) {
      start_barrier(full_barriers + s * sizeof(Barrier), 1);
      if (!kNamed) start_barrier(empty_barriers + s * sizeof(Barrier), kUsers);
    }
    publish_barriers();
  }

  __device__ __forceinline__ uint32_t address() const { return memory + stage * stage_bytes; }
  __device__ __forceinline__ void next() {
    if (++stage < stages) return;
    stage = 0;
    ++round;
  }
  // To the team's next stage: teams take turns.
  __device__ __forceinline__ void next_of_team() {
    stage += kTeams;
    if (stage < stages) return;
    stage -= stages;
    ++round;
  }
  __device__ __forceinline__ void back() {
    if (stage == 0) {
      stage = stages;
      --round;
    }
    --stage;
  }
  // Stages that are the other team's.
  __device__ __forceinline__ void skip(int count) {
    for (stage += count; stage >= stages; stage -= stages) ++round;
  }

  // The copying warps' side: every stage in its turn, and at the end all that were filled.
  __device__ __forceinline__ BarrierAddress full() const { return full_barriers + stage * sizeof(Barrier); }
  __device__ __forceinline__ void wait_empty() const {
    if (round == 0) return;
    if (kNamed) {
      sync_barrier(kFirstEmptyBarrier + stage, kOfStage);
    } else {
      wait_for(empty_barriers + stage * sizeof(Barrier), (round - 1) & 1);
    }
  }
  // Until all but the last `most` stages that were sent for have come.
  __device__ __forceinline__ void wait_in_flight(int most) const {
    const bool wraps = stage < most;
    if (wraps && round == 0) return;
    const int s = wraps ? stage - most + stages : stage - most;
    wait_for(full_barriers + s * sizeof(Barrier), (wraps ? round - 1 : round) & 1);
  }
  __device__ __forceinline__ void wait_all_empty() const {
    for (int s = 0; kNamed && s < (round > 0 ? stages : stage); ++s) sync_barrier(kFirstEmptyBarrier + s, kOfStage);
  }

  // The users' side. Each releases each stage after it has read it.
  __device__ __forceinline__ void wait_full() const { wait_for(full(), round & 1); }
  // The stage `ahead` of the next, less than all stages.
  __device__ __forceinline__ void wait_full(int ahead) const {
    const bool wraps = stage + ahead >= stages;
    const int s = wraps ? stage + ahead - stages : stage + ahead;
    wait_for(full_barriers + s * sizeof(Barrier), (wraps ? round + 1 : round) & 1);
  }
  __device__ __forceinline__ void release() const {
    if (kNamed) {
      arrive_barrier(kFirstEmptyBarrier + stage, kOfStage);
    } else {
      arrive(empty_barriers + stage * sizeof(Barrier));
    }
  }
};

// What warps add up, two sums each.
struct alignas(16) UserSums {
  float first[kUserWarps], second[kUserWarps];
  __device__ __forceinline__ float total() const {
    float a = 0, b = 0;
#pragma unroll
    for (int w = 0; w < kUserWarps; ++w) {
      a += first[w];
      b += second[w];
    }
    return a + b;
  }
};

// The sum of both over the users of the first team, the same in each.
[[maybe_unused]] __device__ __forceinline__ float sum_of_users(float v, float w) {
  __shared__ UserSums sums;
  v = warp_sum(v);
  w = warp_sum(w);
  if (threadIdx.x % 32 == 0) {
    sums.first[threadIdx.x / 32] = v;
    sums.second[threadIdx.x / 32] = w;
  }
  meet();
  const float total = sums.total();
  meet();
  return total;
}
// The sum over both teams, the same bits as if the first had added the second's apart. Not again before all have met.
[[maybe_unused]] __device__ __forceinline__ float sum_of_teams(float v, int team) {
  __shared__ UserSums sums;
  v = warp_sum(v);
  const int warp = threadIdx.x / 32 - team * kUserWarps;
  if (threadIdx.x % 32 == 0) (team == 0 ? sums.first : sums.second)[warp] = v;
  meet_all();
  return sums.total();
}

// Gives registers of the copying warps to the users, where the device can: a block begins with as many for each.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ __forceinline__ void leave_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

}  // namespace vireo::cuda
