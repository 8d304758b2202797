// The decoder's matrices that may have a tier: which there are, and by which names a checkpoint has their rows, codes and scales.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace vireo {

struct Projection {
  int layer;  // -1: lm_head
  const char* name;
  int64_t out, in;
  int64_t experts = 0;  // each of which has such a matrix; 0: there is one

  int64_t matrices() const { return std::max<int64_t>(1, experts); }
  int64_t weights() const { return matrices() * out * in; }
};
std::vector<Projection> projections(const TextConfig& config);

// Whether a plan keeps it in its tier alone. Where the head is the embedding too, that is read in BF16.
bool has_codes_alone(const TierPlan& plan, const Projection& projection, const ModelConfig& config);

// One matrix of a projection, or that of each expert, and where the checkpoint has it.
struct ProjectionPart {
  std::string rows;           // BF16 [out, in]; of experts as expert_rows.h has it
  std::string codes, scales;  // codes_type() and scales_type(), of experts one after the other
  std::string tensor_scale;   // F32, one for each matrix, of nvfp4 alone
  int64_t out = 0, in = 0;
  int64_t experts = 0;      // as of the projection
  Tier tier = Tier::kBf16;  // of the codes; kBf16: there are none
  bool has_rows = true;

  int64_t matrices() const { return std::max<int64_t>(1, experts); }
  int64_t weights() const { return matrices() * out * in; }
  uint64_t coded_bytes() const;
  // Of the tensors in the checkpoint.
  std::vector<int64_t> codes_shape() const { return shape(code_bytes(tier, in)); }
  std::vector<int64_t> scales_shape() const { return shape(tier_groups(in)); }
  std::vector<int64_t> tensor_scale_shape() const { return {matrices()}; }

 private:
  std::vector<int64_t> shape(int64_t cols) const;
};
// In the order of the projection's rows. A tied head is the embedding's rows, which every checkpoint has; its codes have names of their own.
std::vector<ProjectionPart> parts_of(const Projection& projection, const ModelConfig& config);

// The type of tensors of codes: I8 for int8, F8_E4M3 for w8, and U8 for two codes in a byte.
DType codes_type(Tier tier);
// F8_E4M3 for nvfp4, else BF16.
DType scales_type(Tier tier);

}  // namespace vireo
