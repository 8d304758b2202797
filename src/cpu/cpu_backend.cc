// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_backend.h"

#include <algorithm>

#include "cpu/cpu_ops.h"
#include "ops/host_memory.h"

namespace vireo {
namespace {

class CpuBackend : public HostBackend {
 public:
  explicit CpuBackend(const CpuOptions& options)
      : kernels_(cpu::find_kernels(options.isa)), pool_(options.threads), ops_(kernels_, pool_) {}

  std::string name() const override { return "cpu"; }
  std::string description() const override {
    return std::string(kernels_.name) + ", " + std::to_string(pool_.size()) + " threads";
  }
  DType activation_type() const override { return DType::kF32; }
  DType kv_type() const override { return DType::kBF16; }
  Ops& ops() override { return ops_; }
  void set_cancel(const std::atomic<bool>* flag) override { pool_.set_cancel(flag); }

  // Attention reads keys and values in panels (cpu_ops.h): a page of the cache is one row of these tensors.
  OwnedKv allocate_kv(int64_t slots, const AttentionShape& shape) override {
    CHECK(slots % kPageTokens == 0);
    const cpu::KvPage page(shape.head_dim);
    const int64_t pages = slots / kPageTokens;
    OwnedKv kv{{},
               allocate(pages, shape.kv_heads * page.key_head, DType::kBF16),
               allocate(pages, shape.kv_heads * page.value_head, DType::kBF16)};
    kv.view = {kv.k.view, kv.v.view};
    for (Tensor t : {kv.view.k, kv.view.v}) std::fill_n(t.row<bf16>(0), t.size(), bf16{});
    return kv;
  }

  void read_kv(KvLayer cache, const AttentionShape& shape, int64_t slot, float* k, float* v) override {
    ops_.read_row(cache, shape, slot, k, v);
  }

  std::unique_ptr<Linear> place(const std::vector<HostTensor>& parts, const std::vector<HostTensor>& biases,
                                const Role& role) override {
    return cpu::pack(*make_host_linear(parts, biases), role, kernels_, pool_, memory_);
  }

  std::unique_ptr<Linear> place_experts(const std::vector<std::vector<HostTensor>>& experts, ExpertLayout layout,
                                        const Role& role) override {
    return cpu::pack(*make_host_experts(experts, layout), role, kernels_, pool_, memory_);
  }

 private:
  const cpu::Kernels& kernels_;
  ThreadPool pool_;
  cpu::HugeMemory memory_;
  cpu::CpuOps ops_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace vireo
