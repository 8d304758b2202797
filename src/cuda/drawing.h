// The memory of drawing ids on the device, for each sequence of a runner.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cuda/cuda_context.h"
#include "ops/choice.h"

namespace vireo::cuda {

class Drawing {
 public:
  Drawing(CudaBackendBase& backend, int64_t sequences, int64_t vocab);

  // The answer of the sequence begins anew.
  void begin(int32_t sequence, const Choice& choice);
  // Whether the ids of this sequence are other than its largest logits.
  bool draws(int32_t sequence) const { return draws_[static_cast<size_t>(sequence)]; }
  const DrawScratch& scratch() const { return scratch_; }

 private:
  CudaBackendBase& backend_;
  std::vector<bool> draws_;
  OwnedTensor rules_, counts_, adjusted_, bins_;
  DrawScratch scratch_;
};

}  // namespace vireo::cuda
