// Work of one stream recorded as a CUDA graph, to be replayed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "cuda/cuda_error.h"

namespace vireo::cuda {

class Recording {
 public:
  // Runs nothing: what `work` launches on the stream is recorded. Throws what it throws, and Error.
  Recording(cudaStream_t stream, const std::function<void()>& work);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void replay() const;
  // Of the device's memory, as far as other programs left it alone meanwhile.
  uint64_t bytes() const { return bytes_; }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace vireo::cuda
