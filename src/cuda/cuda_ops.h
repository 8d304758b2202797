// Ops on one stream: chooses between the kernels for few rows and for many, and keeps the scratch that they need.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <utility>

#include "cuda/chain.h"
#include "cuda/vendor_gemm.h"
#include "ops/ops.h"

namespace vireo::cuda {

// Memory that kernels need beside their operands; sized before the first step.
struct Scratch {
  DecodeScratch decode;
  SampleScratch sample;
  ChainScratch chain;
  KvLayer restored;                  // a layer of pages in bf16, where caches are in codes
  bf16* restored_weights = nullptr;  // kRestoredWeightBytes, where there are matrices with codes alone
};

class CudaOps : public Ops {
 public:
  explicit CudaOps(const Queue& queue) : queue_(queue) {}

  const Queue& queue() const { return queue_; }
  Scratch& scratch() { return scratch_; }
  const Scratch& scratch() const { return scratch_; }
  // For products of many rows; may be null.
  void use(VendorGemm* vendor) { vendor_ = vendor; }
  // How products of few rows with matrices of this shape are cut; outputs, inputs.
  using Shapes = std::map<std::pair<int64_t, int64_t>, GemvShape>;
  Shapes& shapes() { return shapes_; }
  const Shapes& shapes() const { return shapes_; }
  GemvShape shape_of(std::pair<int64_t, int64_t> shape) const;

  // From here to finish_chain, where the device can, ops of one row that may be links of a chain wait for the next op that may not.
  void begin_chain();
  void finish_chain();
  void forget_chain() { chain_.reset(); }

  void begin_step(bool decode) override { decodes_ = decode; }
  void begin_part(const char* name, int64_t index) override;
  void end_part() override;
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
  // Both, and the ids to the ring.
  void finish_step(Tensor logits, const Step& step, IdRing ring);
  void draw(Tensor logits, const Step& step, const DrawScratch& drawing, IdRing ring);
  void route(Tensor logits, bool renormalize, Tensor ids, Tensor weights) override;
  void experts(const Linear& gate_up, const Linear& down, Tensor x, Tensor ids, Tensor weights, Tensor scratch,
               Tensor inout) override;

  void linear_add(const Linear& w, Tensor x, Tensor scratch, Tensor inout) override;
  void norm_linear(const Norm& norm, const Linear& w, Tensor x, Tensor scratch, Tensor out) override;
  void norm_gate_up(const Norm& norm, const Linear& w, Tensor x, Tensor h, Tensor scratch, Tensor out) override;
  void linear_gelu(const Linear& w, Tensor x, Gelu kind, Tensor out) override;
  void begin_rows(const Linear& table, const Step& step, const RopeTable& rope, Tensor x, Tensor cos_sin) override;
  void norm_rope_attend(Tensor qkv, const HeadNorms& norms, const Step& step, KvLayer cache,
                        const AttentionShape& shape, Tensor out) override;

 private:
  void multiply(const Linear& w, Tensor x, Into into, Tensor out);
  void norm_multiply(const Norm& norm, const Linear& w, Tensor x, Tensor h, Into into, Tensor out);
  // Whether this step reads it in its tier.
  bool reads_codes(const CudaLinear& w) const { return w.reads_codes(decodes_); }
  bool is_few(const CudaLinear& w, Tensor x) const { return x.rows <= kGemvRows || (decodes_ && reads_codes(w)); }
  void few_rows(const CudaLinear& w, Tensor x, const Norm* norm, Into into, Tensor out);
  void many_rows(const CudaLinear& w, Tensor x, Into into, Tensor out);
  // Calls multiply(queue, part, first) for parts of outputs [first, first + part.out) that are there in BF16, restored where w has codes alone.
  void for_bf16_parts(const CudaLinear& w,
                      const std::function<void(const Queue&, const CudaLinear&, int64_t)>& multiply);

  // Where ops that are not links go: behind those that wait.
  const Queue& now() {
    if (chain_) chain_->launch();
    return queue_;
  }

  Queue queue_;
  Scratch scratch_;
  Shapes shapes_;
  std::unique_ptr<Chain> chain_;
  bool decodes_ = false;
  VendorGemm* vendor_ = nullptr;
};

}  // namespace vireo::cuda
