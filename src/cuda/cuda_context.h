// What CudaBackend and GraphRunner share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/cuda_ops.h"
#include "cuda/device_memory.h"
#include "ops/backend.h"

namespace vireo::cuda {

class CudaBackendBase : public Backend {
 public:
  virtual DeviceMemory& memory() = 0;
  virtual CudaOps& cuda_ops() = 0;
  // Finds by timing how products of few rows with the weights that are placed are cut. Results have the same bits however.
  virtual void tune() = 0;
};

// Of `runs` runs of work on the queue, after one that does not count: the median in seconds.
double median_seconds(const Queue& queue, int runs, const std::function<void()>& work);

}  // namespace vireo::cuda
