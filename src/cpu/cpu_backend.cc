// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "cpu/cpu_ops.h"
#include "ops/host_memory.h"

namespace vireo {
namespace cpu {
namespace {

// Of `runs` runs, after one that does not count.
template <typename F>
double median_seconds(int runs, F run) {
  std::vector<double> seconds;
  for (int i = 0; i <= runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    if (i > 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + runs / 2, seconds.end());
  return seconds[static_cast<size_t>(runs / 2)];
}

}  // namespace
}  // namespace cpu

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

  // Attention reads keys and values in panels (cpu_ops.h): a page of the cache is one row of these tensors, its scales those of head after
  // head.
  OwnedKv allocate_kv(int64_t slots, const AttentionShape& shape, KvMode mode) override {
    CHECK(slots % kPageTokens == 0);
    const cpu::KvPage page(shape.head_dim);
    const int64_t pages = slots / kPageTokens;
    const DType type = mode == KvMode::kInt8 ? DType::kI8 : DType::kBF16;
    OwnedKv kv{{},
               allocate(pages, shape.kv_heads * page.key_head, type),
               allocate(pages, shape.kv_heads * page.value_head, type)};
    if (mode == KvMode::kInt8) {
      kv.k_scales = allocate(pages, shape.kv_heads * kPageTokens, DType::kBF16);
      kv.v_scales = allocate(pages, shape.kv_heads * kPageTokens, DType::kBF16);
    }
    kv.view = {kv.k.view, kv.v.view, kv.k_scales.view, kv.v_scales.view};
    for (Tensor t : {kv.view.k, kv.view.v, kv.view.k_scales, kv.view.v_scales}) {
      if (t.data) std::memset(t.data, 0, static_cast<size_t>(t.size()) * size_of(t.dtype));
    }
    return kv;
  }

  void read_kv(KvLayer cache, const AttentionShape& shape, int64_t slot, float* k, float* v) override {
    ops_.read_row(cache, shape, slot, k, v);
  }

  double measure_read_rate() override {
    constexpr int64_t kBytes = int64_t{1} << 30, kItem = int64_t{4} << 20;
    cpu::HugeMemory memory;
    char* data = static_cast<char*>(memory.take(kBytes));
    std::vector<uint32_t> sums(kBytes / kItem);
    pool_.run(kBytes / kItem, [&](int64_t i, int) { std::memset(data + i * kItem, 1, kItem); });
    return kBytes / cpu::median_seconds(7, [&] {
             pool_.run(kBytes / kItem, [&](int64_t i, int) {
               sums[static_cast<size_t>(i)] = kernels_.read_sum(data + i * kItem, kItem);
             });
           });
  }

  double measure_product_rate() override {
    constexpr int64_t kRows = 256, kOut = 6144, kIn = 2048;
    const std::vector<bf16> weights(kOut * kIn, to_bf16(0.01f));
    cpu::HugeMemory memory;
    const auto w = cpu::pack(*make_host_linear({{"w", DType::kBF16, {kOut, kIn}, weights.data()}}, {}), {}, kernels_,
                             pool_, memory);
    const OwnedTensor x = allocate(kRows, kIn, DType::kF32), y = allocate(kRows, kOut, DType::kF32);
    std::fill_n(x.view.row<float>(0), x.view.size(), 1.0f);
    return 2.0 * kRows * kOut * kIn / cpu::median_seconds(7, [&] { ops_.linear(*w, x.view, y.view); });
  }

  std::unique_ptr<Linear> place(const std::vector<HostTensor>& parts, const std::vector<HostTensor>& biases,
                                const Role& role) override {
    return cpu::pack(*make_host_linear(parts, biases, role), role, kernels_, pool_, memory_);
  }

  std::unique_ptr<Linear> place_experts(const std::vector<std::vector<HostTensor>>& experts, ExpertLayout layout,
                                        const Role& role) override {
    return cpu::pack(*make_host_experts(experts, layout, role), role, kernels_, pool_, memory_);
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
