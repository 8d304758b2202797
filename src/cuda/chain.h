// A chain: products and attention of one row that follow each other, in one launch (compute capability 9.0). The launch takes every
// multiprocessor, so that the links can wait for each other within it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "cuda/kernels.h"

namespace vireo::cuda {

class Chain {
 public:
  // `scratch` serves one launch at a time; ChainScratch says what it holds before the first.
  Chain(const Queue& queue, ChainScratch scratch);
  ~Chain();
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  // Each adds a link and returns true, or returns false where the op cannot be one. A link reads what the one before wrote: none overtakes
  // another by more than that, which is why a launch needs no fences. What does not follow begins the next launch. `alone`
  // launches the same by itself, with the same bits: a chain of a few links is not worth its launch.
  // `tier`: BF16, or that of w.coded.
  bool product(const CudaLinear& w, Tier tier, Tensor x, const Norm* norm, Into into, Tensor out,
               std::function<void()> alone);
  bool attend(Tensor qkv, const HeadNorms& norms, const Step& step, KvLayer cache, const AttentionShape& shape,
              Tensor out, std::function<void()> alone);
  // Launches the links that were added, of which the last must have written these logits, or returns false: step.sampled is chosen from
  // them as sample does, and with `ring` the step is finished as finish_step does.
  bool choose(Tensor logits, const Step& step, SampleScratch scratch, IdRing ring);
  // Launches the links that were added; then there are none.
  void launch();

 private:
  struct State;
  const Queue queue_;
  const std::unique_ptr<State> state_;
};

}  // namespace vireo::cuda
