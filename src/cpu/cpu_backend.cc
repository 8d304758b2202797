// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_backend.h"

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

  std::unique_ptr<Linear> place(const std::vector<HostTensor>& parts, const std::vector<HostTensor>& biases,
                                const Role&) override {
    return make_host_linear(parts, biases);
  }

  // The kernels read weights row by row, so experts stored [in, out] are turned once.
  std::unique_ptr<Linear> place_experts(const std::vector<std::vector<HostTensor>>& experts, ExpertLayout layout,
                                        const Role&) override {
    auto placed = make_host_experts(experts, layout);
    if (layout == ExpertLayout::kOutIn) return placed;
    return cpu::turned_experts(*placed);
  }

 private:
  const cpu::Kernels& kernels_;
  ThreadPool pool_;
  cpu::CpuOps ops_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace vireo
