// SPDX-License-Identifier: Apache-2.0
#include "ops/timed_backend.h"

#include <chrono>

namespace vireo {
namespace {

class TimedOps : public Ops {
 public:
  TimedOps(Backend& backend, OnOp on_op) : backend_(backend), ops_(backend.ops()), on_op_(std::move(on_op)) {}

  void begin_step(bool decode) override { ops_.begin_step(decode); }
  void embed(const Linear& table, const Step& step, Tensor out) override {
    time("embed", nullptr, [&] { ops_.embed(table, step, out); });
  }
  void normalize_pixels(Tensor bytes, const PixelScale& scale, Tensor out) override {
    time("normalize_pixels", nullptr, [&] { ops_.normalize_pixels(bytes, scale, out); });
  }
  void linear(const Linear& w, Tensor x, Tensor out) override {
    time("linear", &w, [&] { ops_.linear(w, x, out); });
  }
  void rms_norm(Tensor x, const Norm& norm, Tensor out) override {
    time("rms_norm", nullptr, [&] { ops_.rms_norm(x, norm, out); });
  }
  void layer_norm(Tensor x, const Norm& norm, Tensor out) override {
    time("layer_norm", nullptr, [&] { ops_.layer_norm(x, norm, out); });
  }
  void rope_angles(Tensor positions, const RopeTable& table, Tensor cos_sin) override {
    time("rope_angles", nullptr, [&] { ops_.rope_angles(positions, table, cos_sin); });
  }
  void rope(Tensor x, Tensor cos_sin, int head_dim) override {
    time("rope", nullptr, [&] { ops_.rope(x, cos_sin, head_dim); });
  }
  void append_kv(Tensor k, Tensor v, const Step& step, const AttentionShape& shape, KvLayer cache) override {
    time("append_kv", nullptr, [&] { ops_.append_kv(k, v, step, shape, cache); });
  }
  void attend_cache(Tensor q, const Step& step, KvLayer cache, const AttentionShape& shape, Tensor out) override {
    time("attend_cache", nullptr, [&] { ops_.attend_cache(q, step, cache, shape, out); });
  }
  void attend_spans(Tensor q, Tensor k, Tensor v, Spans spans, const AttentionShape& shape, Tensor out) override {
    time("attend_spans", nullptr, [&] { ops_.attend_spans(q, k, v, spans, shape, out); });
  }
  void silu_mul(Tensor x, Tensor out) override {
    time("silu_mul", nullptr, [&] { ops_.silu_mul(x, out); });
  }
  void gelu(Tensor x, Gelu kind) override {
    time("gelu", nullptr, [&] { ops_.gelu(x, kind); });
  }
  void add(Tensor x, Tensor inout) override {
    time("add", nullptr, [&] { ops_.add(x, inout); });
  }
  void add_rows(Tensor x, Tensor index, Tensor inout) override {
    time("add_rows", nullptr, [&] { ops_.add_rows(x, index, inout); });
  }
  void put_rows(Tensor x, Tensor index, Tensor inout) override {
    time("put_rows", nullptr, [&] { ops_.put_rows(x, index, inout); });
  }
  void gather_rows(Tensor x, Tensor index, Tensor out) override {
    time("gather_rows", nullptr, [&] { ops_.gather_rows(x, index, out); });
  }
  void add_positions(Tensor table, Tensor taps, Tensor weights, Tensor inout) override {
    time("add_positions", nullptr, [&] { ops_.add_positions(table, taps, weights, inout); });
  }
  void sample(Tensor logits, const Step& step) override {
    time("sample", nullptr, [&] { ops_.sample(logits, step); });
  }
  void advance(const Step& step) override {
    time("advance", nullptr, [&] { ops_.advance(step); });
  }
  void route(Tensor logits, bool renormalize, Tensor ids, Tensor weights) override {
    time("route", nullptr, [&] { ops_.route(logits, renormalize, ids, weights); });
  }
  void experts(const Linear& gate_up, const Linear& down, Tensor x, Tensor ids, Tensor weights, Tensor scratch,
               Tensor inout) override {
    time("experts", &gate_up, [&] { ops_.experts(gate_up, down, x, ids, weights, scratch, inout); });
  }
  // begin_rows has its default body: its two parts are timed apart.
  void linear_add(const Linear& w, Tensor x, Tensor scratch, Tensor inout) override {
    time("linear_add", &w, [&] { ops_.linear_add(w, x, scratch, inout); });
  }
  void norm_linear(const Norm& norm, const Linear& w, Tensor x, Tensor scratch, Tensor out) override {
    time("norm_linear", &w, [&] { ops_.norm_linear(norm, w, x, scratch, out); });
  }
  void norm_gate_up(const Norm& norm, const Linear& w, Tensor x, Tensor h, Tensor scratch, Tensor out) override {
    time("norm_gate_up", &w, [&] { ops_.norm_gate_up(norm, w, x, h, scratch, out); });
  }
  void linear_gelu(const Linear& w, Tensor x, Gelu kind, Tensor out) override {
    time("linear_gelu", &w, [&] { ops_.linear_gelu(w, x, kind, out); });
  }
  void norm_rope_attend(Tensor qkv, const HeadNorms& norms, const Step& step, KvLayer cache,
                        const AttentionShape& shape, Tensor out) override {
    time("norm_rope_attend", nullptr, [&] { ops_.norm_rope_attend(qkv, norms, step, cache, shape, out); });
  }

 private:
  template <typename Work>
  void time(const char* op, const Linear* weights, Work work) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    work();
    backend_.wait();
    on_op_(op, weights, std::chrono::duration<double>(Clock::now() - start).count());
  }

  Backend& backend_;
  Ops& ops_;
  OnOp on_op_;
};

class TimedBackend : public Backend {
 public:
  TimedBackend(Backend& backend, OnOp on_op) : b_(backend), ops_(backend, std::move(on_op)) {}

  std::string name() const override { return b_.name(); }
  std::string description() const override { return b_.description(); }
  DType activation_type() const override { return b_.activation_type(); }
  DType residual_type() const override { return b_.residual_type(); }
  DType kv_type() const override { return b_.kv_type(); }
  Ops& ops() override { return ops_; }
  std::optional<uint64_t> available_memory() const override { return b_.available_memory(); }
  OwnedTensor allocate(int64_t rows, int64_t cols, DType dtype) override { return b_.allocate(rows, cols, dtype); }
  void upload(const void* host, Tensor tensor) override { b_.upload(host, tensor); }
  void download(Tensor tensor, void* host) override { b_.download(tensor, host); }
  void copy(Tensor from, Tensor to) override { b_.copy(from, to); }
  OwnedKv allocate_kv(int64_t slots, const AttentionShape& shape, KvMode mode) override {
    return b_.allocate_kv(slots, shape, mode);
  }
  void read_kv(KvLayer cache, const AttentionShape& shape, int64_t slot, float* k, float* v) override {
    b_.read_kv(cache, shape, slot, k, v);
  }
  std::unique_ptr<Linear> place(const std::vector<HostTensor>& parts, const std::vector<HostTensor>& biases,
                                const Role& role) override {
    return b_.place(parts, biases, role);
  }
  std::unique_ptr<Linear> place_experts(const std::vector<std::vector<HostTensor>>& experts, ExpertLayout layout,
                                        const Role& role) override {
    return b_.place_experts(experts, layout, role);
  }
  OwnedTensor place_vector(const HostTensor& vector) override { return b_.place_vector(vector); }
  OwnedTensor place_table(const HostTensor& table) override { return b_.place_table(table); }
  void wait() override { b_.wait(); }
  double measure_read_rate() override { return b_.measure_read_rate(); }
  double measure_product_rate() override { return b_.measure_product_rate(); }
  void set_cancel(const std::atomic<bool>* flag) override { b_.set_cancel(flag); }
  void plan(const HostStep& host, StepMemory& memory) override { b_.plan(host, memory); }

 private:
  Backend& b_;
  TimedOps ops_;
};

}  // namespace

std::unique_ptr<Backend> make_timed_backend(Backend& backend, OnOp on_op) {
  return std::make_unique<TimedBackend>(backend, std::move(on_op));
}

}  // namespace vireo
