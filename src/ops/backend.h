// A backend: memory, the door through which weights enter, the planning of steps, and its Ops.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace vireo {

// Owned backend memory as one dense tensor.
struct OwnedTensor {
  Tensor view;
  std::shared_ptr<void> memory;
};

// K and V of one layer, in a layout of the backend's own.
struct OwnedKv {
  KvLayer view;
  OwnedTensor k, v;
  OwnedTensor k_scales = {}, v_scales = {};
};

// The fixed memory of a Step for at most `rows` rows.
struct StepMemory {
  Step step;  // views at full size
  OwnedTensor indices;
  int64_t max_rows = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;
  // One line for people: threads, instruction set, device.
  virtual std::string description() const = 0;
  // What it found or chose, one line each, for doctor and benchmarks.
  virtual std::vector<std::string> notes() const { return {}; }
  virtual DType activation_type() const = 0;
  // Of the rows that layers add to, and of logits.
  virtual DType residual_type() const { return activation_type(); }
  virtual DType kv_type() const = 0;
  virtual Ops& ops() = 0;
  // Bytes that weights, cache and scratch may take now; nothing where it is not known.
  virtual std::optional<uint64_t> available_memory() const { return std::nullopt; }

  // What the backend takes for itself beside what it is asked for: room of decode steps over caches of `slots` tokens, and of the
  // recordings of up to `sequences` rows.
  struct OwnBytes {
    uint64_t scratch = 0, recordings = 0;
  };
  virtual OwnBytes own_bytes(int64_t /*slots*/, int64_t /*sequences*/, const AttentionShape&, KvMode) const {
    return {};
  }
  // What it takes to prefill with a matrix that is not kept in BF16.
  virtual uint64_t restoring_bytes() const { return 0; }
  // Takes memory for everything that follows at once, where the device has memory of its own kind. Throws Error(kCapacity).
  virtual void reserve(uint64_t /*bytes*/) {}
  // Whether what was placed is a copy in the very memory in which the system keeps the files of weights.
  virtual bool keeps_copies_in_host_memory() const { return false; }

  // Uninitialised, 64-byte aligned. Throws Error(kCapacity) when there is not enough.
  virtual OwnedTensor allocate(int64_t rows, int64_t cols, DType dtype) = 0;
  virtual void upload(const void* host, Tensor tensor) = 0;  // dense host rows of tensor.cols
  virtual void download(Tensor tensor, void* host) = 0;      // waits for the work before it
  virtual void copy(Tensor from, Tensor to) = 0;             // same shape and type, dense rows

  // Zeroed room for `slots` tokens (a multiple of kPageTokens).
  virtual OwnedKv allocate_kv(int64_t slots, const AttentionShape& shape, KvMode mode) = 0;
  // K and V of one slot as float32 [kv_heads * head_dim] each, for tests and tools.
  virtual void read_kv(KvLayer cache, const AttentionShape& shape, int64_t slot, float* k, float* v) = 0;

  // One Linear of the stacked rows of `parts` ([out_i, in] each, BF16), with a bias of out_i each where `biases` is not empty. A part
  // without data is what its codes in the role stand for, rounded to BF16; codes of the role's tier are used as they are.
  // The tensors must outlive the Linear: a backend may read them in place.
  virtual std::unique_ptr<Linear> place(const std::vector<HostTensor>& parts, const std::vector<HostTensor>& biases,
                                        const Role& role) = 0;
  // experts[e] holds the parts of expert e, each a matrix in `layout`; codes are in rows of outputs whatever that is. A part without data
  // as in place().
  virtual std::unique_ptr<Linear> place_experts(const std::vector<std::vector<HostTensor>>& experts,
                                                ExpertLayout layout, const Role& role) = 0;
  // A BF16 vector as float32 [1, n].
  virtual OwnedTensor place_vector(const HostTensor& vector) = 0;
  // A BF16 matrix as it is.
  virtual OwnedTensor place_table(const HostTensor& table) = 0;

  // Runs `work`, and readies products like those of many rows that it makes, of up to `most_rows` rows, where the first of a kind would
  // take longer than others.
  virtual void rehearse(int64_t /*most_rows*/, const std::function<void()>& /*work*/) {}
  // Marks the stretch that a profiler should look at.
  virtual void mark_timed(bool /*begins*/) {}
  // Returns when all work so far is done; for measuring.
  virtual void wait() {}
  // What this device does when it does nothing else, measured now: bytes read a second, and operations a second of a product
  // of many rows with a [6144, 2048] matrix. The denominators of benchmarks; 0 where it makes no sense.
  virtual double measure_read_rate() { return 0; }
  virtual double measure_product_rate() { return 0; }
  // The same product without a vendor's library; 0 where none is used.
  virtual double measure_own_product_rate() { return 0; }

  // Looks at the flag between work items and makes what is left of an op do nothing once it is set; the caller then
  // abandons the step. Null: never.
  virtual void set_cancel(const std::atomic<bool>* flag) = 0;

  // Room for steps of up to `max_rows` rows of up to `sequences` sequences of `pages` pages each, page tables filled
  // with the identity.
  StepMemory allocate_step(int64_t max_rows, int64_t sequences, int64_t pages);
  // The one call that sees host lengths; before the step and outside any capture.
  virtual void plan(const HostStep& host, StepMemory& memory);
};

}  // namespace vireo
