// cuda_attend_bench: attention of many rows at the shapes of the vision towers and of a prompt, by the kernels for warpgroups (9.0 alone) and by
// those for all devices: microseconds and TFLOP/s.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_context.h"

namespace vireo::cuda {
namespace {

class AttendBench {
 public:
  explicit AttendBench(CudaBackendBase& backend) : b_(backend), queue_(backend.cuda_ops().queue()) {}

  void span(int64_t rows, int heads, int head_dim) {
    const AttentionShape shape{heads, heads, head_dim, 1 / std::sqrt(static_cast<float>(head_dim))};
    const int64_t cols = int64_t{heads} * head_dim;
    const OwnedTensor qkv = random(rows, 3 * cols), out = b_.allocate(rows, cols, DType::kBF16);
    const Tensor q = qkv.view.slice_cols(0, cols), k = qkv.view.slice_cols(cols, cols),
                 v = qkv.view.slice_cols(2 * cols, cols);
    const double operations = 4.0 * static_cast<double>(rows) * static_cast<double>(rows) * static_cast<double>(cols);
    const std::string name = fmt::format("span {} x {} x {}", heads, rows, head_dim);
    if (attends_wide(queue_, shape, q, k, v)) {
      report(name + ", warpgroups", operations, [&] { attend_wide(queue_, q, k, v, shape, out.view); });
    }
    report(name + ", any device", operations, [&] { attend_span(queue_, q, k, v, shape, out.view); });
  }

  void pages(int64_t rows, int heads, int kv_heads, int head_dim) {
    const AttentionShape shape{heads, kv_heads, head_dim, 1 / std::sqrt(static_cast<float>(head_dim))};
    const int64_t pages = (rows + kPageTokens - 1) / kPageTokens;
    const OwnedKv kv = b_.allocate_kv(pages * kPageTokens, shape, KvMode::kBf16);
    StepMemory memory = b_.allocate_step(rows, 1, pages);
    HostStep host;
    for (int32_t i = 0; i < rows; ++i) {
      host.ids.push_back(0);
      host.positions.push_back({i, i, i});
      host.sequences.push_back(0);
      host.cache_indices.push_back(i);
    }
    b_.plan(host, memory);
    const int64_t cols = int64_t{heads} * head_dim, kv_cols = int64_t{kv_heads} * head_dim;
    const OwnedTensor q = random(rows, cols), k = random(rows, kv_cols), out = b_.allocate(rows, cols, DType::kBF16);
    append_kv(queue_, k.view, k.view, memory.step, shape, kv.view);
    const double operations = 2.0 * static_cast<double>(rows) * static_cast<double>(rows) * static_cast<double>(cols);
    const std::string name = fmt::format("pages {} / {} x {} x {}, causal", heads, kv_heads, rows, head_dim);
    if (attends_pages_wide(queue_, shape, q.view)) {
      report(name + ", warpgroups", operations,
             [&] { attend_pages_wide(queue_, q.view, memory.step, kv.view, shape, out.view); });
    }
    report(name + ", any device", operations,
           [&] { attend_pages(queue_, q.view, memory.step, kv.view, shape, out.view); });
  }

 private:
  OwnedTensor random(int64_t rows, int64_t cols) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<bf16> values(static_cast<size_t>(rows * cols));
    for (bf16& v : values) v = to_bf16(normal(random));
    const OwnedTensor t = b_.allocate(rows, cols, DType::kBF16);
    b_.upload(values.data(), t.view);
    return t;
  }

  void report(const std::string& name, double operations, const std::function<void()>& work) {
    constexpr int kTimes = 5;
    const double seconds = median_seconds(queue_, 9,
                                          [&] {
                                            for (int i = 0; i < kTimes; ++i) work();
                                          }) /
                           kTimes;
    fmt::print("{:48} {:8.1f} us {:6.0f} TFLOP/s\n", name, seconds * 1e6, operations / seconds * 1e-12);
  }

  CudaBackendBase& b_;
  const Queue& queue_;
};

}  // namespace
}  // namespace vireo::cuda

// --kernels 87: the compute_87 code, translated by the driver.
int main(int argc, char** argv) {
  const int kernels = argc > 2 && std::string(argv[1]) == "--kernels" ? std::stoi(argv[2]) : 0;
  const auto backend = vireo::make_cuda_backend({.kernels = kernels});
  fmt::print("{}\n", backend->description());
  vireo::cuda::AttendBench bench(dynamic_cast<vireo::cuda::CudaBackendBase&>(*backend));
  for (const int64_t rows : {6256, 1824}) {
    bench.span(rows, 16, 64);
    bench.span(rows, 16, 72);
  }
  bench.pages(1581, 16, 8, 128);
  bench.pages(473, 16, 8, 128);
  return 0;
}
