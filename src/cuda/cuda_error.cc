// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_error.h"

#include <string>

#include "vireo/error.h"

namespace vireo::cuda {

void cuda_failed(cudaError_t error, const char* call) {
  cudaGetLastError();  // one that does not stick is not reported again
  const std::string what = std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) {
    throw Error(ErrorKind::kCapacity, "the GPU has no memory left for this (" + what +
                                          "): use a smaller --max-seq or --max-pixels, or stop what else uses it");
  }
  throw Error(ErrorKind::kDevice,
              "the GPU failed with " + what + " in " + std::string(call).substr(0, 60) + ": see `vireo doctor`");
}

}  // namespace vireo::cuda
