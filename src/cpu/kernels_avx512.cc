// SPDX-License-Identifier: Apache-2.0
#define VIREO_KERNEL_SET avx512
#define VIREO_LANES 16
#include "cpu/kernels.inc"

namespace vireo::cpu {

const Kernels& avx512_kernels() {
  static constexpr Kernels kernels = avx512::make("avx512");
  return kernels;
}

}  // namespace vireo::cpu
