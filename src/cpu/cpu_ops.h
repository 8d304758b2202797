// Ops on the CPU: how each op is cut into work items. The cut depends on shapes alone, never on the number of threads, and every
// output element is computed by one item in one order, the same for any number of rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/kernels.h"
#include "cpu/packed_linear.h"
#include "ops/host_memory.h"

namespace vireo::cpu {

// The KV cache is kept in panels too: a page holds, per KV head, its 64 keys as 4 panels over head_dim and its values as
// panels over the 64 tokens, so that attention reads both as products do.
struct KvPage {
  int64_t key_head = 0;    // bf16 values of one head's keys in a page
  int64_t value_head = 0;  // and of its values
  explicit KvPage(int64_t head_dim)
      : key_head(kGroupPanels * panel_size(head_dim)), value_head(panels_of(head_dim) * panel_size(kPageTokens)) {}
};

// Values of input rows and of scratch, grown between ops' items and never inside them.
template <typename T>
T* grown(std::vector<T>& memory, int64_t size) {
  if (static_cast<int64_t>(memory.size()) < size) memory.resize(static_cast<size_t>(size));
  return memory.data();
}

class CpuOps : public Ops {
 public:
  CpuOps(const Kernels& kernels, ThreadPool& pool) : k_(kernels), pool_(pool) {}

  void begin_step(bool decode) override { decodes_ = decode; }
  void embed(const Linear& table, const Step& step, Tensor out) override;
  void normalize_pixels(Tensor bytes, const PixelScale& scale, Tensor out) override;
  void linear(const Linear& w, Tensor x, Tensor out) override;
  void rms_norm(Tensor x, const Norm& norm, Tensor out) override;
  void layer_norm(Tensor x, const Norm& norm, Tensor out) override;
  void rope_angles(Tensor positions, const RopeTable& table, Tensor cos_sin) override;
  void rope(Tensor x, Tensor cos_sin, int head_dim) override;
  void append_kv(Tensor k, Tensor v, const Step& step, const AttentionShape& shape, KvLayer cache) override;
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

  void linear_add(const Linear& w, Tensor x, Tensor scratch, Tensor inout) override;
  void norm_gate_up(const Norm& norm, const Linear& w, Tensor x, Tensor h, Tensor scratch, Tensor out) override;
  void linear_gelu(const Linear& w, Tensor x, Gelu kind, Tensor out) override;
  void norm_rope_attend(Tensor qkv, const HeadNorms& norms, const Step& step, KvLayer cache,
                        const AttentionShape& shape, Tensor out) override;

  // K and V of one slot as floats.
  static void read_row(KvLayer cache, const AttentionShape& shape, int64_t slot, float* k, float* v);

 private:
  // Rows in the form that products read.
  struct Inputs {
    const char* data;
    int64_t stride;  // values
    int64_t rows;
  };
  // What becomes of a tile of products.
  enum class Into { kStore, kAdd, kGeluTanh, kGeluErf };
  struct QueryBlock;

  Inputs inputs(Tensor x);
  // Rows as products with these panels read them; the stride is in bytes.
  Inputs tier_inputs(const TierPanels& panels, Tensor x);
  const void* input_row(const Inputs& in, int64_t row) const { return in.data + row * in.stride * k_.input_bytes; }
  // Whether this step reads it in its tier.
  bool reads_codes(const PackedLinear& w) const { return w.tier.data && (decodes_ || !w.panels); }
  // One row, as the matrix reads it, times that of a group.
  void multiply_row(const PackedLinear& w, int64_t group, const void* input, float* y) const;
  void multiply(const Linear& w, Tensor x, Into into, Tensor out);
  template <typename Done>
  void for_tiles(const PackedLinear& w, Tensor x, Done done);
  void finish(const float* tile, int64_t rows, int64_t row, const PackedLinear& w, int64_t panel, int64_t count,
              Into into, Tensor out) const;
  void attend_block(const Step& step, KvLayer cache, const AttentionShape& shape, Tensor q, Tensor out, int64_t first,
                    int64_t rows, int64_t kv_head) const;
  // Keys and values of one head in a page, as panels; with scales of the tokens where the panels hold codes.
  struct KvHead {
    const bf16* keys;
    const bf16* values;
    const bf16* key_scales = nullptr;
    const bf16* value_scales = nullptr;
  };
  KvHead head_of(KvLayer cache, const AttentionShape& shape, int64_t page, int64_t head) const;
  void attend_panels(QueryBlock& block, const KvHead& head) const;
  void append_row(const float* k, const float* v, int64_t slot, const AttentionShape& shape, KvLayer cache) const;
  void pack_span(Tensor k, Tensor v, int64_t first, int64_t tokens, const AttentionShape& shape, bf16* keys,
                 bf16* values) const;

  // Runs body(row) for all rows, several rows per item so that an item is worth waking a thread for.
  template <typename Body>
  void for_rows(int64_t rows, int64_t row_cost, Body body) {
    constexpr int64_t kItemCost = 16384;  // elements: some microseconds of work
    const int64_t grain = std::max<int64_t>(1, kItemCost / std::max<int64_t>(1, row_cost));
    pool_.run((rows + grain - 1) / grain, [&](int64_t item, int) {
      const int64_t end = std::min(rows, (item + 1) * grain);
      for (int64_t r = item * grain; r < end; ++r) body(r);
    });
  }

  const Kernels& k_;
  ThreadPool& pool_;
  bool decodes_ = false;
  std::vector<char> input_memory_, act_memory_;
  std::vector<bf16> span_memory_;
};

}  // namespace vireo::cpu
