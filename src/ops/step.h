// Step: everything that changes between two steps of the decoder, in backend memory at fixed addresses, so that a recorded
// step can be replayed for any position. HostStep is its host-side twin; Backend::plan copies one into the other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/tensor.h"

namespace vireo {

// Tokens of one KV page.
inline constexpr int kPageTokens = 64;

using Position = std::array<int32_t, 3>;  // t, h, w

struct HostStep {
  std::vector<int32_t> ids;            // [rows]
  std::vector<Position> positions;     // [rows]
  std::vector<int32_t> sequences;      // [rows] row of the page table
  std::vector<int32_t> cache_indices;  // [rows] place of the row's token in its sequence
  std::vector<int32_t> wanted;         // rows whose logits are wanted, ascending
  std::vector<int32_t> visual_rows;    // rows whose embedding an image row replaces, ascending
  Tensor features;                     // [visual_rows, hidden], backend memory
  std::vector<Tensor> deepstack;       // one [visual_rows, hidden] per tap, backend memory

  int64_t rows() const { return static_cast<int64_t>(ids.size()); }
};

// All index tensors are I32 with one column unless said otherwise.
struct Step {
  int64_t rows = 0;
  Tensor ids;          // [rows]
  Tensor positions;    // [rows, 3]
  Tensor sequences;    // [rows]
  Tensor lengths;      // [rows] cache tokens that the row attends to: itself and all before it
  Tensor slots;        // [rows] where the row's K and V go: page * kPageTokens + offset, or -1 for nowhere
  Tensor page_table;   // [sequences, pages]
  Tensor wanted;       // [wanted]
  Tensor visual_rows;  // [visual], null when there are none
  Tensor features;     // [visual, hidden], null when there are none
  std::vector<Tensor> deepstack;
  Tensor sampled;  // [wanted] the id chosen for each wanted row; -1 where a logit was not finite
};

}  // namespace vireo
