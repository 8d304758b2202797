// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cuda/cuda_backend.h"
#include "engine/cuda_choice.h"

namespace vireo::cuda_choice {
namespace {

using Level = Finding::Level;

double gib(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

std::string line_of(const CudaDevice& d) {
  return fmt::format("{}, compute capability {}.{}, {} multiprocessors, {:.1f} GiB{} ({:.1f} free)", d.name,
                     d.capability / 10, d.capability % 10, d.multiprocessors, gib(d.memory_bytes),
                     d.integrated ? " shared with the CPU" : "", gib(d.free_bytes));
}

// The device, and what its backend says once it is made.
void add_findings(const CudaDevice& device, std::vector<Finding>& findings) {
  const std::string subject = fmt::format("cuda:{}", device.index);
  findings.push_back({Level::kOk, subject, line_of(device)});
  try {
    const auto backend = make(device.index, Options{});
    findings.push_back({Level::kOk, subject, "would use " + backend->description()});
    for (const std::string& note : backend->notes()) findings.push_back({Level::kOk, subject, note});
  } catch (const Error& e) {
    findings.push_back({Level::kProblem, subject, e.what()});
  }
}

}  // namespace

bool is_built() {
  return true;
}

std::unique_ptr<Backend> make(int index, const Options& options) {
  return make_cuda_backend({.device = index, .kernels = options.kernels, .gemm_candidates = options.gemm_candidates});
}

std::unique_ptr<Backend> make_first(const Options& options, std::string& reason) {
  choose_cuda_kernels(options.kernels);
  for (const CudaDevice& device : cuda_devices(reason)) {
    try {
      return make(device.index, options);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kDevice) throw;
      reason = e.what();
    }
  }
  return nullptr;
}

std::string shortfall(Backend& backend) {
  return cuda_shortfall(backend);
}

std::unique_ptr<Runner> make_graph_runner(Backend& backend, Forward forward, const RunnerShape& shape) {
  return vireo::make_graph_runner(backend, std::move(forward), shape);
}

std::vector<Finding> findings() {
  std::string reason;
  const std::vector<CudaDevice> devices = cuda_devices(reason);
  std::vector<Finding> out = {{Level::kOk, "cuda", "kernels are built for " + cuda_architectures()}};
  if (devices.empty()) out.push_back({Level::kNote, "cuda", "no GPU used: " + reason + "; models run on the CPU"});
  for (const CudaDevice& device : devices) add_findings(device, out);
  return out;
}

}  // namespace vireo::cuda_choice
