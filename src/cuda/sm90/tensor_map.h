// Tensor maps: how bulk tensor copies find boxes of heads (compute capability 9.0).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cudaTypedefs.h>

#include "cuda/kernels.h"

namespace vireo::cuda {

inline constexpr int kBoxCols = 64;  // 128 bytes, swizzled

// The driver's function that writes maps, or null where it has none.
PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder();
// bf16 [rows, heads, head_dim] by boxes of `box_rows` rows and 64 columns of one head; zeros behind the last row and
// behind the head. The data begins at 16 bytes, and its rows and heads are a multiple of them.
CUtensorMap tensor_map(Tensor t, int head_dim, int box_rows);

}  // namespace vireo::cuda
