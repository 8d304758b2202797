// The decode form of a quantised matrix on the CPU: panels of 16 outputs, cut into groups of 16 inputs. A group is 16 scales (bf16), then
// codes: int8 [8 pairs][16 outputs][2], e4m3 [4 quads][16 outputs][4], or nibbles in words [2 halves][16 outputs]: of a half's 8
// inputs 0, 2, 4 and 6 in the low 16 bits, the others in the high ones.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/tier.h"

namespace vireo::cpu {

struct TierPanels {
  enum class Codes { kInt8, kE4m3, kNibbles };
  Codes codes = Codes::kInt8;
  int64_t groups = 0;                      // of a panel
  const uint8_t* data = nullptr;           // in HugeMemory; null: the matrix is BF16
  const int16_t* nibble_values = nullptr;  // 16, by nibble, in units of nibble_unit
  float nibble_unit = 1;

  bool is_integer() const { return codes != Codes::kE4m3; }
  // Bytes of a row as Kernels::to_tier_input makes it.
  int64_t input_bytes() const { return is_integer() ? groups * (kTierGroup * 2 + 4) : (groups * kTierGroup + 1) * 4; }
  int64_t group_bytes() const { return 16 * 2 + kTierGroup * (codes == Codes::kNibbles ? 16 / 2 : 16); }
  int64_t panel_bytes() const { return groups * group_bytes(); }
};

}  // namespace vireo::cpu
