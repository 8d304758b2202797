// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda_choice.h"

namespace vireo::cuda_choice {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::kUsage, "this build has no CUDA backend: use --device cpu");
}

}  // namespace

bool is_built() {
  return false;
}

std::unique_ptr<Backend> make(int, const Options&) {
  refuse();
}

std::unique_ptr<Backend> make_first(const Options&, std::string& reason) {
  reason.clear();
  return nullptr;
}

std::string shortfall(Backend&) {
  return "";
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): as the other build has it
std::unique_ptr<Runner> make_graph_runner(Backend&, Forward, const RunnerShape&) {
  refuse();
}

std::vector<Finding> findings() {
  return {
      {Finding::Level::kNote, "cuda",
       "this build has no CUDA backend; models run on the CPU (to build one: cmake -DGPU_ARCH=ARCHITECTURES, e.g. 87 "
       "for a Jetson Orin or 90a for an H200)"}};
}

}  // namespace vireo::cuda_choice
