// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels.h"

#include <sys/auxv.h>

#include "vireo/error.h"

namespace vireo::cpu {

std::vector<const Kernels*> usable_kernels() {
  std::vector<const Kernels*> sets;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni"))
    sets.push_back(&avx512_bf16_kernels());
  if (avx512) sets.push_back(&avx512_kernels());
  // All that have AVX2 have F16C, which clang 16 does not know by name here.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) sets.push_back(&avx2_kernels());
#elif defined(__aarch64__)
  constexpr unsigned long kBf16 = 1 << 14;  // HWCAP2_BF16, which older headers do not name
  if (getauxval(AT_HWCAP2) & kBf16) sets.push_back(&neon_bf16_kernels());
  sets.push_back(&neon_kernels());
#endif
  sets.push_back(&portable_kernels());
  return sets;
}

const Kernels& find_kernels(const std::string& name) {
  const auto sets = usable_kernels();
  if (name == "auto") return *sets.front();
  std::string names = "auto";
  for (const Kernels* k : sets) {
    if (name == k->name) return *k;
    names += std::string(", ") + k->name;
  }
  throw Error(ErrorKind::kUsage,
              "--isa " + name + " is not an instruction set that this machine and build have: use " + names);
}

}  // namespace vireo::cpu
