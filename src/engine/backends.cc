// SPDX-License-Identifier: Apache-2.0
#include "engine/backends.h"

#include <fmt/format.h>

#include "base/thread_pool.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"
#include "ops/reference.h"

namespace vireo {

void validate_device(const std::string& device) {
  if (device == "auto" || device == "cpu" || device == "reference") return;
  if (device == "cuda" || device.rfind("cuda:", 0) == 0) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--device {} needs a CUDA build, which this is not: use cpu (or auto)", device));
  }
  throw Error(ErrorKind::kUsage, fmt::format("--device {} is unknown: use auto, cpu or reference", device));
}

std::unique_ptr<Backend> make_backend(const Options& options) {
  validate_device(options.device);
  if (options.device == "reference") return make_reference_backend();
  return make_cpu_backend({.threads = options.threads, .isa = options.isa});
}

std::vector<Finding> backend_findings() {
  std::string sets;
  for (const cpu::Kernels* k : cpu::usable_kernels()) sets += (sets.empty() ? "" : ", ") + std::string(k->name);
  std::vector<Finding> findings;
  findings.push_back(
      {Finding::Level::kOk, "cpu", fmt::format("{} threads, kernels: {} (the first is used)", usable_cpus(), sets)});
  findings.push_back({Finding::Level::kNote, "cuda", "this build has no CUDA backend; models run on the CPU"});
  return findings;
}

}  // namespace vireo
