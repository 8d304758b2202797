// The decode form of a quantised matrix on the CPU: panels of 16 outputs, cut into groups of 16 inputs. A group is 16 scales (bf16), then
// codes: bytes [16 inputs][16 outputs], or nibbles in words [2][16 outputs], the first of a word's 8 inputs lowest. A nibble's
// low three bits are a magnitude, the fourth the sign.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/tier.h"

namespace vireo::cpu {

struct TierPanels {
  enum class Codes { kInt8, kE4m3, kNibbles };
  Codes codes = Codes::kInt8;
  int64_t groups = 0;                    // of a panel
  const uint8_t* data = nullptr;         // in HugeMemory; null: the matrix is BF16
  const float* nibble_values = nullptr;  // 16, by nibble

  int64_t group_bytes() const { return 16 * 2 + kTierGroup * (codes == Codes::kNibbles ? 16 / 2 : 16); }
  int64_t panel_bytes() const { return groups * group_bytes(); }
};

}  // namespace vireo::cpu
