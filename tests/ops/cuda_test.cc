// SPDX-License-Identifier: Apache-2.0
#include "cuda_test.h"

#include <cstdio>
#include <string_view>

#include "cuda/cuda_backend.h"
#include "vireo/error.h"

namespace vireo::testing_cuda {
namespace {

CudaOptions& options() {
  static CudaOptions options;
  return options;
}

// What gtest has left of the command line.
bool parse(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--kernels=87") {
      options().kernels = 87;
    } else if (argument == "--many-launches") {
      options().one_launch = false;
    } else if (argument == "--own-products") {
      options().vendor_libraries = false;
    } else {
      std::fprintf(
          stderr, "unknown argument '%s'; known are --kernels=87, --many-launches, --own-products and those of gtest\n",
          argv[i]);
      return false;
    }
  }
  return true;
}

}  // namespace

std::string why_no_device() {
  static const std::string reason = [] {
    // A backend first: once the driver has been asked for its devices, it is too late to choose kernels.
    try {
      make_backend();
    } catch (const Error&) {
      std::string none;
      if (!cuda_devices(none).empty()) throw;
      return none.empty() ? "there is no CUDA device" : none;
    }
    return std::string();
  }();
  return reason;
}

std::unique_ptr<Backend> make_backend() {
  return make_cuda_backend(options());
}

}  // namespace vireo::testing_cuda

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return vireo::testing_cuda::parse(argc, argv) ? RUN_ALL_TESTS() : 2;
}
