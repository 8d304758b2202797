// The CPU backend: Ops on a thread pool with kernels chosen for the processor. BF16 weights are packed in panels at load;
// activations are float32, the KV cache is BF16.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "ops/backend.h"

namespace vireo {

struct CpuOptions {
  int threads = 0;           // 0: all processors this process may use
  std::string isa = "auto";  // a name of cpu::usable_kernels()
};

// Throws Error(kUsage) for an instruction set that is not there.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

}  // namespace vireo
