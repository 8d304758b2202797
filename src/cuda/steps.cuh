// The end of a step for one row, whoever chose its id.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/device.cuh"
#include "cuda/kernels.h"

namespace vireo::cuda {

struct AdvanceArguments {
  int32_t *ids, *positions, *lengths, *slots;
  const int32_t *sampled, *sequences, *page_table;
  int rows, pages;
};

inline AdvanceArguments advance_arguments(const Step& step) {
  AdvanceArguments a = {};
  a.ids = step.ids.row<int32_t>(0);
  a.positions = step.positions.row<int32_t>(0);
  a.lengths = step.lengths.row<int32_t>(0);
  a.slots = step.slots.row<int32_t>(0);
  a.sampled = step.sampled.row<int32_t>(0);
  a.sequences = step.sequences.row<int32_t>(0);
  a.page_table = step.page_table.row<int32_t>(0);
  a.rows = static_cast<int>(step.rows);
  a.pages = static_cast<int>(step.page_table.cols);
  return a;
}

__device__ __forceinline__ void advance_row(const AdvanceArguments& a, int r, int32_t sampled) {
  a.ids[r] = max(0, sampled);
  for (int axis = 0; axis < 3; ++axis) ++a.positions[3 * r + axis];
  const int index = a.lengths[r];
  const bool inside = index / kPageTokens < a.pages;
  // Beyond the last page nothing is stored, and nothing more is seen.
  if (inside) a.lengths[r] = index + 1;
  a.slots[r] =
      inside ? a.page_table[a.sequences[r] * a.pages + index / kPageTokens] * kPageTokens + index % kPageTokens : -1;
}

// By one thread of each row. What the host reads comes in one word: no fence has to wait for the host's memory.
__device__ __forceinline__ void publish_row(const IdRing& ring, int r, int rows, int32_t sampled, int32_t* rows_done) {
  const int32_t number = *ring.done;
  volatile uint64_t* slot = ring.words + number % ring.count * kGemvRows;
  slot[r] = uint64_t{static_cast<uint32_t>(number + 1)} << 32 | static_cast<uint32_t>(sampled);
  if (rows > 1 && add_in_order(rows_done, 1) != rows - 1) return;
  *rows_done = 0;
  *ring.done = number + 1;
}

}  // namespace vireo::cuda
