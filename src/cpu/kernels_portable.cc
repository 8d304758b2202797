// SPDX-License-Identifier: Apache-2.0
#define VIREO_KERNEL_SET portable
#define VIREO_LANES 8
#include "cpu/kernels.inc"

namespace vireo::cpu {

const Kernels& portable_kernels() {
  static constexpr Kernels kernels = portable::make("portable");
  return kernels;
}

}  // namespace vireo::cpu
