// CudaLinear: the weights of one projection in device memory, as every kernel reads them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/weights.h"

namespace vireo::cuda {

// A matrix in a tier, or one for each expert, as kernels read it (tier_layout.h): chunks of 16 outputs by 128 inputs, [groups][tiles][chunks].
struct TierMatrix {
  const uint8_t* data = nullptr;
  int chunks = 0;  // of a tile
  Tier tier = Tier::kBf16;
};

class CudaLinear : public Linear {
 public:
  // kPairs: output j of the first half is row 2 j and output j of the second half row 2 j + 1, so that a gate lies beside its
  // up projection.
  enum class Order { kPlain, kPairs };

  CudaLinear(int64_t in_features, int64_t out_features, int64_t group_count, Order row_order)
      : Linear(in_features, out_features, group_count), order(row_order), stride((in_features + 7) / 8 * 8) {}

  // The row of memory that holds output `o`.
  int64_t row_of(int64_t o) const {
    if (order == Order::kPlain) return o;
    return o < out / 2 ? 2 * o : 2 * (o - out / 2) + 1;
  }
  // The output in a row of memory.
  int64_t output_of(int64_t row) const { return order == Order::kPlain ? row : row / 2 + row % 2 * (out / 2); }
  int64_t group_size() const { return out * stride; }
  // Whether a step reads it in its tier.
  bool reads_codes(bool decodes) const { return coded.data && (decodes || !weights); }

  const Order order;
  const int64_t stride;             // elements of a row, a multiple of 8, zeros behind `in`
  bf16* weights = nullptr;          // [groups][out][stride]; null: there are codes alone
  const float* bias = nullptr;      // [out] in the order of outputs, or null
  const bf16* bias_bf16 = nullptr;  // the same values
  TierMatrix coded;                 // beside the weights, for decode steps; or nothing
};

}  // namespace vireo::cuda
