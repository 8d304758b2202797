// Ops on the CPU: how each op is cut into work items. The cut depends on shapes alone, never on the number of threads, and
// every output element is computed by one item in one order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "cpu/kernels.h"
#include "ops/host_memory.h"

namespace vireo::cpu {

// Copies experts stored [in, out] as [out, in].
std::unique_ptr<HostLinear> turned_experts(const HostLinear& experts);

class CpuOps : public Ops {
 public:
  CpuOps(const Kernels& kernels, ThreadPool& pool) : k_(kernels), pool_(pool) {}

  void embed(const Linear& table, const Step& step, Tensor out) override;
  void normalize_pixels(Tensor bytes, const PixelScale& scale, Tensor out) override;
  void linear(const Linear& w, Tensor x, Tensor out) override;
  void rms_norm(Tensor x, const Norm& norm, Tensor out) override;
  void layer_norm(Tensor x, const Norm& norm, Tensor out) override;
  void rope_angles(Tensor positions, const RopeTable& table, Tensor cos_sin) override;
  void rope(Tensor x, Tensor cos_sin, int head_dim) override;
  void append_kv(Tensor k, Tensor v, const Step& step, KvLayer cache) override;
  void attend_cache(Tensor q, const Step& step, KvLayer cache, const AttentionShape& shape, Tensor out) override;
  void attend_spans(Tensor q, Tensor k, Tensor v, Spans spans, const AttentionShape& shape, Tensor out) override;
  void silu_mul(Tensor x, Tensor out) override;
  void gelu(Tensor x, Gelu kind) override;
  void add(Tensor x, Tensor inout) override;
  void add_rows(Tensor x, Tensor index, Tensor inout) override;
  void put_rows(Tensor x, Tensor index, Tensor inout) override;
  void gather_rows(Tensor x, Tensor index, Tensor out) override;
  void add_positions(Tensor table, Tensor taps, Tensor weights, Tensor inout) override;
  void sample(Tensor logits, const Step& step) override;
  void advance(const Step& step) override;
  void route(Tensor logits, bool renormalize, Tensor ids, Tensor weights) override;
  void experts(const Linear& gate_up, const Linear& down, Tensor x, Tensor ids, Tensor weights, Tensor scratch,
               Tensor inout) override;
  void norm_rope_append(Tensor qkv, const Norm& q_norm, const Norm& k_norm, Tensor cos_sin, const Step& step,
                        const AttentionShape& shape, KvLayer cache) override;

 private:
  // What becomes of a product W x + b.
  enum class Into { kStore, kAdd };

  // Runs body(row) for all rows, several rows per item so that an item is worth waking a thread for.
  template <typename Body>
  void for_rows(int64_t rows, int64_t row_cost, Body body);

  const Kernels& k_;
  ThreadPool& pool_;
};

}  // namespace vireo::cpu
