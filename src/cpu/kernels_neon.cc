// SPDX-License-Identifier: Apache-2.0
#define VIREO_KERNEL_SET neon
#define VIREO_LANES 4
#include "cpu/kernels.inc"

namespace vireo::cpu {

const Kernels& neon_kernels() {
  static constexpr Kernels kernels = neon::make("neon");
  return kernels;
}

}  // namespace vireo::cpu
