// Drawing ids from logits: penalties, temperature, top-k, top-p and min-p, then one draw. Whatever is kept is a beginning of the
// logits in falling order (lower ids first among equals), and so is what lies before the id that is drawn; nothing is sorted to
// find where such a beginning ends. Weights are whole numbers, so that their sums are the same in any order.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cfloat>

#include "base/check.h"
#include "cuda/steps.cuh"
#include "ops/choice.h"

namespace vireo::cuda {
namespace {

using Whole = unsigned long long;

constexpr int kPartThreads = 256;  // of a block for a part of a row
constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kBins = kDrawBins;
constexpr int kListed = kThreads;
constexpr int kWeightBits = 40;  // the weight of the largest logit is 2^40
// Bins are as wide as 1/64 of the temperature; what would lie in the last one or behind it weighs nothing.
constexpr float kBinsOfTemperature = 64;

__device__ __forceinline__ float penalised(float v, uint32_t count, const DrawRule& rule) {
  if (count == 0) return v;
  if (rule.repetition_penalty != 1) v = v > 0 ? v / rule.repetition_penalty : v * rule.repetition_penalty;
  const uint32_t chosen = count & ~kInPrompt;
  if (chosen > 0) v -= static_cast<float>(rule.presence_penalty + rule.frequency_penalty * chosen);
  return v;
}

__device__ __forceinline__ int sequence_of(const int32_t* wanted, const int32_t* sequences, int row) {
  return sequences[wanted[row]];
}

// grid.x parts of the row grid.y.
__global__ void __launch_bounds__(kPartThreads)
    adjust_kernel(const float* logits, int64_t stride, const int32_t* wanted, const int32_t* sequences, DrawScratch d) {
  let_next_start();
  wait_for_previous();
  const int64_t sequence = sequence_of(wanted, sequences, blockIdx.y);
  const DrawRule rule = d.rules[sequence];
  const uint32_t* counts = d.counts + sequence * d.vocab;
  const float* from = logits + blockIdx.y * stride;
  float* to = d.adjusted + blockIdx.y * d.pitch;
  for (int64_t i = blockIdx.x * kPartThreads + threadIdx.x; i < d.vocab; i += gridDim.x * kPartThreads) {
    float v = from[i];
    if (rule.penalises) v = penalised(v, counts[i], rule);
    to[i] = i < rule.vocabulary ? v + 0.0f : -FLT_MAX;  // no -0
  }
}

// A row of logits, of weights exp((logit - largest) / temperature).
struct Row {
  const float* logits;
  int count;
  float largest, temperature;

  __device__ __forceinline__ Row(const DrawScratch& d, const DrawRule& rule, int row, int largest_id)
      : logits(d.adjusted + row * d.pitch),
        count(rule.vocabulary),
        largest(logits[largest_id]),
        temperature(rule.temperature) {}

  __device__ __forceinline__ int bin(float v) const {
    return static_cast<int>(fminf((largest - v) / temperature * kBinsOfTemperature, kBins - 1));
  }
  __device__ __forceinline__ Whole weight(float v) const {
    return static_cast<Whole>(expf((v - largest) / temperature) * static_cast<float>(1ull << kWeightBits));
  }

  // visit(id, logit) for all, `threads` threads together, this one the thread `first` of them. Many loads are on their way at once.
  template <typename Visit>
  __device__ __forceinline__ void for_each(int first, int threads, Visit visit) const {
    constexpr int kLoads = 4;
    const float4* quads = reinterpret_cast<const float4*>(logits);
    const int end = (count + 3) / 4;
    for (int q = first; q < end; q += kLoads * threads) {
      float4 v[kLoads];
#pragma unroll
      for (int k = 0; k < kLoads; ++k) v[k] = quads[min(q + k * threads, end - 1)];
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        if (q + k * threads >= end) break;
        const float of[4] = {v[k].x, v[k].y, v[k].z, v[k].w};
        const int id = 4 * (q + k * threads);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (id + i < count) visit(id + i, of[i]);
        }
      }
    }
  }
};

// The weights and the number of logits of each bin, of a row: parts of it add what they found, and who uses them clears them.
struct Bins {
  Whole* weights;
  uint32_t* counts;
  __device__ __forceinline__ Bins(const DrawScratch& d, int row)
      : weights(reinterpret_cast<Whole*>(d.bin_weights) + row * kBins), counts(d.bin_counts + row * kBins) {}
};

// grid.x parts of the row grid.y.
__global__ void __launch_bounds__(kPartThreads)
    bin_kernel(const int32_t* wanted, const int32_t* sequences, DrawScratch d, const int32_t* sampled) {
  __shared__ Whole weights[kBins];
  __shared__ uint32_t counts[kBins];
  for (int b = threadIdx.x; b < kBins; b += kPartThreads) weights[b] = counts[b] = 0;
  let_next_start();
  wait_for_previous();
  __syncthreads();
  const DrawRule rule = d.rules[sequence_of(wanted, sequences, blockIdx.y)];
  const int largest = sampled[blockIdx.y];
  if (largest < 0 || rule.temperature <= 0) return;
  const Row row(d, rule, blockIdx.y, largest);
  uint32_t last = 0;
  row.for_each(blockIdx.x * kPartThreads + threadIdx.x, gridDim.x * kPartThreads, [&](int, float v) {
    const int b = row.bin(v);
    // Most logits of a trained model: one address for all would be slow.
    if (b == kBins - 1) {
      ++last;
      return;
    }
    atomicAdd(&weights[b], row.weight(v));
    atomicAdd(&counts[b], 1u);
  });
  last = __reduce_add_sync(kAllLanes, last);
  if (threadIdx.x % 32 == 0) atomicAdd(&counts[kBins - 1], last);
  __syncthreads();
  const Bins bins(d, blockIdx.y);
  for (int b = threadIdx.x; b < kBins; b += kPartThreads) {
    if (counts[b] == 0) continue;
    atomicAdd(&bins.weights[b], weights[b]);
    atomicAdd(&bins.counts[b], counts[b]);
  }
}

// Falling logits, then rising ids, as rising numbers.
__device__ __forceinline__ Whole place_of(float v, int id) {
  const uint32_t bits = __float_as_uint(v);
  return Whole{bits >> 31 ? bits : ~(bits | 1u << 31)} << 32 | static_cast<uint32_t>(id);
}

struct Room {
  Whole weights[kBins];    // of the bin and those before it
  uint32_t counts[kBins];  // the same
  Whole listed[kListed];   // places of a bin's logits
  Whole listed_weights[kListed];
  Whole sums[kWarps];
  uint32_t count_sums[kWarps];
  int bin, listed_count;
  Whole found, found_weight;
};

__device__ __forceinline__ Whole sum_of_block(Room& room, Whole v) {
#pragma unroll
  for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(kAllLanes, v, o);
  __syncthreads();
  if (threadIdx.x % 32 == 0) room.sums[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0;
  for (int w = 0; w < kWarps; ++w) v += room.sums[w];
  return v;
}

// Takes the bins, as sums of the bins up to each. Thread t has bins 2 t and 2 t + 1.
__device__ __forceinline__ void take_bins(Room& room, const Bins& bins) {
  static_assert(kBins == 2 * kThreads);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, b = 2 * threadIdx.x;
  const Whole first = bins.weights[b], own = first + bins.weights[b + 1];
  const uint32_t first_count = bins.counts[b], own_count = first_count + bins.counts[b + 1];
  bins.weights[b] = bins.weights[b + 1] = 0;
  bins.counts[b] = bins.counts[b + 1] = 0;
  Whole sum = own;
  uint32_t count = own_count;
#pragma unroll
  for (int o = 1; o < 32; o *= 2) {
    const Whole before = __shfl_up_sync(kAllLanes, sum, o);
    const uint32_t count_before = __shfl_up_sync(kAllLanes, count, o);
    if (lane < o) continue;
    sum += before;
    count += count_before;
  }
  if (lane == 31) {
    room.sums[warp] = sum;
    room.count_sums[warp] = count;
  }
  __syncthreads();
  for (int w = 0; w < warp; ++w) {
    sum += room.sums[w];
    count += room.count_sums[w];
  }
  room.weights[b] = sum - own + first;
  room.weights[b + 1] = sum;
  room.counts[b] = count - own_count + first_count;
  room.counts[b + 1] = count;
  __syncthreads();
}

enum class By { kCount, kWeight };
// The first logit up to which there are `target` logits, or weights: its id, and all weights up to it.
struct End {
  int id;
  Whole weight;
};

// Of the logits of one bin, listed in any order; `rest` is what is left of the target, `weight` lies before the bin.
__device__ __forceinline__ void find_in_list(Room& room, By by, Whole rest, Whole weight) {
  if (threadIdx.x >= room.listed_count) return;
  const Whole mine = room.listed[threadIdx.x], my_weight = room.listed_weights[threadIdx.x];
  Whole before = 0, count = 0;
  for (int i = 0; i < room.listed_count; ++i) {
    if (room.listed[i] >= mine) continue;
    before += room.listed_weights[i];
    ++count;
  }
  const Whole begin = by == By::kCount ? count : before, end = begin + (by == By::kCount ? 1 : my_weight);
  if (begin >= rest || rest > end) return;
  room.found = mine;
  room.found_weight = weight + before + my_weight;
}

// The same for a bin of more logits than can be listed, bit by bit of the place.
__device__ __forceinline__ void find_in_row(Room& room, const Row& row, int bin, By by, Whole rest, Whole weight) {
  const auto sum_before = [&](Whole place, By of) {
    Whole sum = 0;
    row.for_each(threadIdx.x, kThreads, [&](int i, float v) {
      if (row.bin(v) == bin && place_of(v, i) < place) sum += of == By::kCount ? 1 : row.weight(v);
    });
    return sum_of_block(room, sum);
  };
  Whole place = 0;
  for (int bit = 63; bit >= 0; --bit) {
    if (bit < 32 && row.count >> bit == 0) continue;
    const Whole further = place | Whole{1} << bit;
    if (sum_before(further, by) < rest) place = further;
  }
  const Whole up_to = sum_before(place + 1, By::kWeight);
  if (threadIdx.x > 0) return;
  room.found = place;
  room.found_weight = weight + up_to;
}

__device__ End find_end(Room& room, const Row& row, By by, Whole target) {
  const auto up_to = [&](int b) { return b < 0 ? 0 : by == By::kCount ? Whole{room.counts[b]} : room.weights[b]; };
  if (threadIdx.x == 0) room.listed_count = 0;
  for (int b = threadIdx.x; b < kBins; b += kThreads) {
    if (up_to(b - 1) < target && target <= up_to(b)) room.bin = b;
  }
  __syncthreads();
  const int bin = room.bin;
  row.for_each(threadIdx.x, kThreads, [&](int i, float v) {
    if (row.bin(v) != bin) return;
    const int at = atomicAdd(&room.listed_count, 1);
    if (at >= kListed) return;
    room.listed[at] = place_of(v, i);
    room.listed_weights[at] = row.weight(v);
  });
  __syncthreads();
  const Whole rest = target - up_to(bin - 1), weight = bin == 0 ? 0 : room.weights[bin - 1];
  if (room.listed_count <= kListed) {
    find_in_list(room, by, rest, weight);
  } else {
    find_in_row(room, row, bin, by, rest, weight);
  }
  __syncthreads();
  const End end = {static_cast<int>(room.found & 0xffffffffu), room.found_weight};
  __syncthreads();
  return end;
}

// The weights of all that top-k, top-p and min-p keep: each keeps a beginning, so the least of the three.
__device__ Whole kept_weight(Room& room, const Row& row, const DrawRule& rule) {
  Whole kept = room.weights[kBins - 1];
  // Those of the last bin weigh nothing.
  if (rule.top_k > 0 && rule.top_k < room.counts[kBins - 2]) kept = find_end(room, row, By::kCount, rule.top_k).weight;
  const Whole of_top_k = kept;
  if (rule.top_p < 1) {
    const Whole target = static_cast<Whole>(ceil(rule.top_p * static_cast<double>(of_top_k)));
    kept = find_end(room, row, By::kWeight, min(max(target, Whole{1}), of_top_k)).weight;
  }
  if (rule.min_p > 0) {
    const Whole least = static_cast<Whole>(ceil(rule.min_p * static_cast<double>(1ull << kWeightBits)));
    Whole sum = 0;
    row.for_each(threadIdx.x, kThreads, [&](int, float v) {
      const Whole weight = row.weight(v);
      if (weight >= least) sum += weight;
    });
    kept = min(kept, sum_of_block(room, sum));
  }
  return kept;
}

// A block for each row; `sampled` is the largest of the adjusted logits, or -1, and becomes what is drawn. With `ring` the step is
// finished.
__global__ void __launch_bounds__(kThreads)
    draw_kernel(const int32_t* wanted, const int32_t* sequences, DrawScratch d, int32_t* sampled,
                AdvanceArguments advance, IdRing ring, int32_t* rows_done) {
  extern __shared__ Whole shared[];
  Room& room = *reinterpret_cast<Room*>(shared);
  let_next_start();
  wait_for_previous();
  const int r = blockIdx.x;
  const int64_t sequence = sequence_of(wanted, sequences, r);
  const DrawRule rule = d.rules[sequence];
  int id = sampled[r];
  if (id >= 0 && rule.temperature > 0) {
    const Row row(d, rule, r, id);
    take_bins(room, Bins(d, r));
    const Whole kept = kept_weight(room, row, rule);
    // chance / 2^53 of what is kept
    id = find_end(room, row, By::kWeight, __umul64hi(chance(rule.seed, rule.index) << 11, kept) + 1).id;
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  sampled[r] = id;
  if (id >= 0) ++d.counts[sequence * d.vocab + id];
  ++d.rules[sequence].index;
  if (!ring.words) return;
  advance_row(advance, r, id);
  publish_row(ring, r, gridDim.x, id, rows_done);
}

}  // namespace

void draw(const Queue& queue, Tensor logits, const Step& step, SampleScratch scratch, const DrawScratch& drawing,
          IdRing ring) {
  CHECK(logits.dtype == DType::kF32 && logits.cols == drawing.vocab && logits.rows == step.sampled.rows);
  CHECK(!ring.words || (logits.rows == step.rows && step.rows <= kGemvRows));
  static SharedMemory memory;
  memory.allow(reinterpret_cast<const void*>(draw_kernel), sizeof(Room));
  const int32_t* sequences = step.sequences.row<int32_t>(0);
  const unsigned parts =
      static_cast<unsigned>(std::min<int64_t>(kSampleParts, (drawing.vocab + kPartThreads - 1) / kPartThreads));
  for (int64_t first = 0; first < logits.rows; first += kGemvRows) {
    const int64_t rows = std::min<int64_t>(kGemvRows, logits.rows - first);
    const int32_t* wanted = step.wanted.row<int32_t>(first);
    launch(queue, adjust_kernel, dim3(parts, static_cast<unsigned>(rows)), kPartThreads, 0, logits.row<float>(first),
           logits.stride, wanted, sequences, drawing);
    const Tensor adjusted = {drawing.adjusted, DType::kF32, rows, drawing.vocab, drawing.pitch};
    const Tensor sampled = step.sampled.slice_rows(first, rows);
    sample(queue, adjusted, sampled, scratch);
    launch(queue, bin_kernel, dim3(parts, static_cast<unsigned>(rows)), kPartThreads, 0, wanted, sequences, drawing,
           sampled.row<int32_t>(0));
    launch(queue, draw_kernel, static_cast<unsigned>(rows), kThreads, sizeof(Room), wanted, sequences, drawing,
           sampled.row<int32_t>(0), advance_arguments(step), ring, scratch.counters + kGemvRows);
  }
}

}  // namespace vireo::cuda
