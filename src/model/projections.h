// The decoder's matrices that may have a tier: which there are, and by which names a checkpoint has their rows, codes and scales.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace vireo {

// Experts have no tier.
struct Projection {
  int layer;  // -1: lm_head
  const char* name;
  int64_t out, in;
};
std::vector<Projection> projections(const TextConfig& config);

// One matrix of a projection, and where the checkpoint has it.
struct ProjectionPart {
  std::string rows;           // BF16 [out, in]
  std::string codes, scales;  // codes_type() [out, code_bytes()] and scales_type() [out, tier_groups()]
  std::string tensor_scale;   // F32 [1], of nvfp4 alone
  int64_t out = 0, in = 0;
  Tier tier = Tier::kBf16;  // of the codes; kBf16: there are none
  bool has_rows = true;

  uint64_t coded_bytes() const;
};
// In the order of the projection's rows. A tied head is the embedding's rows, which every checkpoint has; its codes have names of their own.
std::vector<ProjectionPart> parts_of(const Projection& projection, const ModelConfig& config);

// The type of tensors of codes: I8 for int8, F8_E4M3 for w8, and U8 for two codes in a byte.
DType codes_type(Tier tier);
// F8_E4M3 for nvfp4, else BF16.
DType scales_type(Tier tier);

}  // namespace vireo
