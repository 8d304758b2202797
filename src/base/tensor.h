// Views of memory that somebody else owns: Tensor, the two-dimensional operand of an op, and HostTensor, a named
// tensor of a checkpoint as it lies in its file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"

namespace vireo {

// `rows` rows of `cols` elements, `stride` elements apart, in the memory of one backend. Cheap to copy. A null Tensor
// (no data) stands for "absent" where a declaration says so.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  explicit operator bool() const { return data != nullptr; }
  int64_t size() const { return rows * cols; }

  // Element pointers; only for code that runs where the memory is.
  template <typename T>
  T* row(int64_t r) const {
    return static_cast<T*>(data) + r * stride;
  }

  Tensor slice_rows(int64_t first, int64_t count) const {
    CHECK(first >= 0 && count >= 0 && first + count <= rows);
    Tensor t = *this;
    t.data = static_cast<char*>(data) + first * stride * static_cast<int64_t>(size_of(dtype));
    t.rows = count;
    return t;
  }
  Tensor slice_cols(int64_t first, int64_t count) const {
    CHECK(first >= 0 && count >= 0 && first + count <= cols);
    Tensor t = *this;
    t.data = static_cast<char*>(data) + first * static_cast<int64_t>(size_of(dtype));
    t.cols = count;
    return t;
  }
  // The same elements as rows of `new_cols`; needs dense rows.
  Tensor reshape_cols(int64_t new_cols) const {
    CHECK(stride == cols && new_cols > 0 && size() % new_cols == 0);
    return {data, dtype, size() / new_cols, new_cols, new_cols};
  }
};

// A dense, read-only tensor of a checkpoint. `data` stays valid while the file that it came from is open.
struct HostTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;

  int64_t size() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
  size_t bytes() const { return static_cast<size_t>(size()) * size_of(dtype); }
};

// "[2048, 6144]", for messages.
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace vireo
