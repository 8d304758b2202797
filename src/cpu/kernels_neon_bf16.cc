// SPDX-License-Identifier: Apache-2.0
#define VIREO_KERNEL_SET neon_bf16
#define VIREO_LANES 4
#include "cpu/kernels.inc"

namespace vireo::cpu {

const Kernels& neon_bf16_kernels() {
  static constexpr Kernels kernels = neon_bf16::make("neon_bf16");
  return kernels;
}

}  // namespace vireo::cpu
