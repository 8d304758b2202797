// SPDX-License-Identifier: Apache-2.0
#include "base/tensor.h"

#include <gtest/gtest.h>

namespace vireo {
namespace {

TEST(Tensor, SlicesKeepTheStride) {
  float data[12];
  for (int i = 0; i < 12; ++i) data[i] = static_cast<float>(i);
  const Tensor t{data, DType::kF32, 3, 4, 4};
  const Tensor s = t.slice_rows(1, 2).slice_cols(2, 2);
  EXPECT_EQ(s.rows, 2);
  EXPECT_EQ(s.cols, 2);
  EXPECT_EQ(s.row<float>(0)[0], 6);
  EXPECT_EQ(s.row<float>(1)[1], 11);
}

TEST(Tensor, ReshapeJoinsRows) {
  float data[12] = {};
  const Tensor t = Tensor{data, DType::kF32, 4, 3, 3}.reshape_cols(6);
  EXPECT_EQ(t.rows, 2);
  EXPECT_EQ(t.stride, 6);
}

TEST(TensorDeathTest, SliceOutsideIsAProgramError) {
  float data[4] = {};
  const Tensor t{data, DType::kF32, 2, 2, 2};
  EXPECT_DEATH(t.slice_rows(1, 2), "CHECK");
}

TEST(HostTensor, SizeAndShapeText) {
  const HostTensor t{"w", DType::kBF16, {2, 3, 4}, nullptr};
  EXPECT_EQ(t.size(), 24);
  EXPECT_EQ(t.bytes(), 48u);
  EXPECT_EQ(shape_text(t.shape), "[2, 3, 4]");
}

}  // namespace
}  // namespace vireo
