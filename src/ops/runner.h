// Runner: what advances sequences by whole steps. EagerRunner walks the model's definition op by op on any backend; it is the
// correctness reference for every other runner.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ops/backend.h"

namespace vireo {

// The decoder's forward pass for one step: from step.ids to logits [wanted, vocab].
using Forward = std::function<Tensor(const Step& step)>;

class Runner {
 public:
  virtual ~Runner() = default;
  // Appends rows to their sequences' caches and chooses an id for each wanted row.
  virtual void extend(const HostStep& rows) = 0;
  // Defines the rows of the decode steps that follow, one per sequence; every row is wanted.
  virtual void seat(const HostStep& rows) = 0;
  // One step for the seated rows; the chosen ids are the next step's input.
  virtual void decode() = 0;
  // Of the last extend or decode: the id of each wanted row (-1: its logits were not finite), and the logits.
  virtual std::span<const int32_t> sampled() = 0;
  virtual Tensor logits() const = 0;
};

// `pages` per sequence and `sequences` as in Backend::allocate_step; extend takes at most `max_rows` rows.
struct RunnerShape {
  int64_t max_rows = 0;
  int64_t sequences = 1;
  int64_t pages = 0;
};

std::unique_ptr<Runner> make_eager_runner(Backend& backend, Forward forward, const RunnerShape& shape);

}  // namespace vireo
