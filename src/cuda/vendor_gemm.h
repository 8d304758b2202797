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
  // Of `candidates` algorithms that the library proposes the fastest is found by timing in warm_up; 1: its first choice is taken.
  VendorGemm(void* workspace, int candidates);
  ~VendorGemm();
  VendorGemm(const VendorGemm&) = delete;
  VendorGemm& operator=(const VendorGemm&) = delete;

  // "cuBLASLt 13.0" and what was timed, or why there is none.
  std::string state() const;
  bool is_there() const;

  // As gemm() for kStore, kAdd and kGeluTanh with outputs in the order of the weights' rows; false, and nothing is done, where the library
  // is missing or cannot.
  bool multiply(const Queue& queue, const CudaLinear& w, Tensor x, Into into, Tensor out);

  // Remembers products from here to warm_up.
  void listen();
  // Chooses algorithms for products like those it remembers, of up to `most_rows` rows, and runs each, so that none is looked for, or its
  // code loaded, when it is needed. The memory for it holds any values.
  struct Room {
    void* x = nullptr;
    void* y = nullptr;
    int64_t bytes = 0;  // of each
  };
  void warm_up(const Queue& queue, int64_t most_rows, Room room);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace vireo::cuda
