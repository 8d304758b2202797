// Runner: what advances sequences by whole steps. EagerRunner walks the model's definition op by op on any backend; it is the
// correctness reference for every other runner.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ops/backend.h"
#include "ops/choice.h"

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
  // Readies the decode step of the seated rows, where the first one would take longer than others.
  virtual void rehearse() {}
  // One step for the seated rows; the chosen ids are the next step's input.
  virtual void decode() = 0;
  // How the ids of a sequence are chosen from its next extend on; by its largest logit until this is called. False: not here, sampled()
  // stays the largest logit and the caller chooses from logits().
  virtual bool choose_by(int32_t /*sequence*/, const Choice& choice) { return is_greedy(choice.sampling); }
  // How many steps may run before their predecessors' ids have been read by sampled(): decode() may have begun that many
  // more than it was called for. sampled() stays that of the last decode() itself; logits() is unspecified until the next
  // extend() or seat(). Lowered to 0, as before the last step that has room in the cache, nothing new is begun ahead; a step
  // that already was is the next decode(). extend() and seat() set it to 0 and forget what was begun in vain, whose only trace
  // is cache rows beyond the sequence's end.
  virtual void run_ahead(int64_t /*steps*/) {}
  // Of the last extend or decode: the id chosen for each wanted row (-1: its logits were not finite), and the logits.
  virtual std::span<const int32_t> sampled() = 0;
  virtual Tensor logits() const = 0;

  // Steps that were recorded to be replayed, and how often; forgetting them makes the next decode record anew.
  struct Recordings {
    int captured = 0;
    int64_t replays = 0;
    uint64_t bytes = 0;  // of the device's memory
  };
  virtual Recordings recordings() const { return {}; }
  virtual void forget_recordings() {}
};

// `pages` per sequence and `sequences` as in Backend::allocate_step; extend takes at most `max_rows` rows. Logits have `vocab` columns.
struct RunnerShape {
  int64_t max_rows = 0;
  int64_t sequences = 1;
  int64_t pages = 0;
  int64_t vocab = 0;
  int recorded_extends = 0;  // kinds of extend to keep recordings of, where steps can be recorded
};

std::unique_ptr<Runner> make_eager_runner(Backend& backend, Forward forward, const RunnerShape& shape);

}  // namespace vireo
