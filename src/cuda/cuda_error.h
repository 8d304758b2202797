// CUDA_CHECK: a failed CUDA call becomes an Error, so that a lost device or full memory fails its sessions and not the process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

namespace vireo::cuda {

// Throws Error(kCapacity) when memory is short and Error(kDevice) otherwise.
[[noreturn]] void cuda_failed(cudaError_t error, const char* call);

inline void cuda_check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) cuda_failed(error, call);
}

}  // namespace vireo::cuda

#define CUDA_CHECK(call) ::vireo::cuda::cuda_check((call), #call)
