// VendorGemm: products of many rows by cuBLASLt, which is looked for at run time. Without it the kernels of gemm.cu do the same.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "cuda/cuda_linear.h"
#include "cuda/kernels.h"

namespace vireo::cuda {

class VendorGemm {
 public:
  // `workspace`: device memory that products on one stream may use.
  static constexpr size_t kWorkspaceBytes = 32 << 20;
  explicit VendorGemm(void* workspace);
  ~VendorGemm();
  VendorGemm(const VendorGemm&) = delete;
  VendorGemm& operator=(const VendorGemm&) = delete;

  // "cuBLASLt 13.0", or why there is none.
  const std::string& state() const;
  bool is_there() const;

  // As gemm() for kStore, kAdd and kGeluTanh with outputs in the order of the weights' rows; false, and nothing is done, where the library
  // is missing or cannot.
  bool multiply(const Queue& queue, const CudaLinear& w, Tensor x, Into into, Tensor out);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace vireo::cuda
