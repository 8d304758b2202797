// SPDX-License-Identifier: Apache-2.0
#define VIREO_KERNEL_SET avx2
#define VIREO_LANES 8
#include "cpu/kernels.inc"

namespace vireo::cpu {

const Kernels& avx2_kernels() {
  static constexpr Kernels kernels = avx2::make("avx2");
  return kernels;
}

}  // namespace vireo::cpu
