// SPDX-License-Identifier: Apache-2.0
#include "engine/backends.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/thread_pool.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"
#include "engine/cuda_choice.h"
#include "ops/reference.h"

namespace vireo {
namespace {

constexpr int kMostDevices = 64;

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorKind::kUsage, sentence);
}

bool names_cuda(const std::string& device) {
  return device == "cuda" || device.rfind("cuda:", 0) == 0;
}

bool is_cuda(const Backend& backend) {
  return backend.name() == "cuda";
}

// N of cuda:N; of cuda alone, 0.
int cuda_index(const std::string& device) {
  if (device == "cuda") return 0;
  const std::string number = device.substr(5);
  int index = -1;
  std::from_chars(number.data(), number.data() + number.size(), index);
  if (index < 0 || index >= kMostDevices || number != std::to_string(index)) {
    refuse(fmt::format("--device {} is not a device: write cuda, or cuda:N with a number N from 0 to {}", device,
                       kMostDevices - 1));
  }
  return index;
}

std::unique_ptr<Backend> make_cpu(const Options& options) {
  return make_cpu_backend({.threads = options.threads, .isa = options.isa});
}

}  // namespace

void validate_device(const std::string& device) {
  if (device == "auto" || device == "cpu" || device == "reference") return;
  const bool built = cuda_choice::is_built();
  if (!names_cuda(device)) {
    refuse(fmt::format("--device {} is unknown: use {}", device,
                       built ? "auto, cpu, reference, cuda or cuda:N" : "auto, cpu or reference"));
  }
  if (!built) {
    refuse(fmt::format("--device {} needs a CUDA build, which this is not: use cpu (or auto)", device));
  }
  cuda_index(device);
}

void validate_kernels(int kernels) {
  if (kernels == 0) return;
  if (kernels != 87) {
    refuse(fmt::format(
        "--kernels {} is unknown: use 87 for those of compute_87, or 0 for the best that this build has for the GPU",
        kernels));
  }
  if (!cuda_choice::is_built()) {
    refuse(fmt::format("--kernels {} needs a CUDA build, which this is not: leave it out", kernels));
  }
}

std::unique_ptr<Backend> make_backend(const Options& options, std::vector<std::string>& notes) {
  validate_device(options.device);
  if (options.device == "cpu") return make_cpu(options);
  if (options.device == "reference") return make_reference_backend();
  std::string reason;
  auto on_gpu = names_cuda(options.device) ? cuda_choice::make(cuda_index(options.device), options)
                                           : cuda_choice::make_first(options, reason);
  if (on_gpu) {
    if (std::string lacks = cuda_choice::shortfall(*on_gpu); !lacks.empty()) notes.push_back(std::move(lacks));
    return on_gpu;
  }
  if (!reason.empty()) notes.push_back("no GPU used: " + reason);
  return make_cpu(options);
}

std::unique_ptr<Runner> make_runner(const Options& options, Backend& backend, Forward forward,
                                    const RunnerShape& shape) {
  if (options.graph && is_cuda(backend)) return cuda_choice::make_graph_runner(backend, std::move(forward), shape);
  return make_eager_runner(backend, std::move(forward), shape);
}

int64_t prefill_rows(const Options& options, const Backend& backend) {
  const int64_t rows = options.prefill_chunk > 0 ? options.prefill_chunk : is_cuda(backend) ? 2048 : 512;
  return std::min<int64_t>(rows, options.max_seq);
}

std::vector<Finding> backend_findings() {
  std::string sets;
  for (const cpu::Kernels* k : cpu::usable_kernels()) sets += (sets.empty() ? "" : ", ") + std::string(k->name);
  std::vector<Finding> findings = {
      {Finding::Level::kOk, "cpu", fmt::format("{} threads, kernels: {} (the first is used)", usable_cpus(), sets)}};
  for (Finding& f : cuda_choice::findings()) findings.push_back(std::move(f));
  return findings;
}

}  // namespace vireo
