// SPDX-License-Identifier: Apache-2.0
#define VIREO_KERNEL_SET avx512_bf16
#define VIREO_LANES 16
#include "cpu/kernels.inc"

namespace vireo::cpu {

const Kernels& avx512_bf16_kernels() {
  static constexpr Kernels kernels = avx512_bf16::make("avx512_bf16");
  return kernels;
}

}  // namespace vireo::cpu
