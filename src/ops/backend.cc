// SPDX-License-Identifier: Apache-2.0
#include "ops/backend.h"

#include <algorithm>

namespace vireo {
namespace {

// Columns of StepMemory::indices, one int32 each per row; positions take three.
enum Column { kIds, kPositions, kSequences = kPositions + 3, kLengths, kSlots, kWanted, kVisual, kSampled, kColumns };

Tensor index_view(const OwnedTensor& indices, int64_t max_rows, int column, int64_t rows, int64_t cols = 1) {
  int32_t* base = static_cast<int32_t*>(indices.view.data) + column * max_rows;
  return {base, DType::kI32, rows, cols, cols};
}

}  // namespace

StepMemory Backend::allocate_step(int64_t max_rows, int64_t sequences, int64_t pages) {
  StepMemory m;
  m.max_rows = max_rows;
  const int64_t table = sequences * pages;
  m.indices = allocate(1, kColumns * max_rows + table, DType::kI32);
  m.step.page_table = {static_cast<int32_t*>(m.indices.view.data) + kColumns * max_rows, DType::kI32, sequences, pages,
                       pages};
  std::vector<int32_t> identity(static_cast<size_t>(table));
  for (int64_t i = 0; i < table; ++i) identity[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  upload(identity.data(), m.step.page_table);
  return m;
}

void Backend::plan(const HostStep& host, StepMemory& m) {
  const int64_t rows = host.rows();
  CHECK(rows > 0 && rows <= m.max_rows);
  const int64_t pages = m.step.page_table.cols;
  std::vector<int32_t> positions, lengths, slots;
  for (int64_t r = 0; r < rows; ++r) {
    const size_t i = static_cast<size_t>(r);
    positions.insert(positions.end(), host.positions[i].begin(), host.positions[i].end());
    const int32_t index = host.cache_indices[i];
    CHECK(index >= 0 && index < pages * kPageTokens);
    lengths.push_back(index + 1);
    slots.push_back(static_cast<int32_t>(host.sequences[i] * pages * kPageTokens + index));
  }
  const auto set = [&](Tensor& view, int column, const std::vector<int32_t>& values, int64_t cols = 1) {
    view = index_view(m.indices, m.max_rows, column, static_cast<int64_t>(values.size()) / cols, cols);
    if (view.rows > 0) upload(values.data(), view);
  };
  Step& s = m.step;
  s.rows = rows;
  set(s.ids, kIds, host.ids);
  set(s.positions, kPositions, positions, 3);
  set(s.sequences, kSequences, host.sequences);
  set(s.lengths, kLengths, lengths);
  set(s.slots, kSlots, slots);
  set(s.wanted, kWanted, host.wanted);
  set(s.visual_rows, kVisual, host.visual_rows);
  s.sampled = index_view(m.indices, m.max_rows, kSampled, static_cast<int64_t>(host.wanted.size()));
  s.features = host.features;
  s.deepstack = host.deepstack;
}

}  // namespace vireo
