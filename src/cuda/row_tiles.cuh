// Which block of an attention kernel takes which rows of which head.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vireo::cuda {

// Over pages the last rows of a chunk see the most keys: they go first, of all heads, and the short ones fill the gaps at the end. In a
// span all take the same time, and heads go one after the other, so that few of them are in L2 at a time.
template <bool kPaged>
struct RowTile {
  int tile, head;

  static dim3 grid(int tiles, int heads) {
    return kPaged ? dim3(static_cast<unsigned>(heads), static_cast<unsigned>(tiles))
                  : dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(heads));
  }
  static __device__ __forceinline__ RowTile mine() {
    if (kPaged) return {static_cast<int>(gridDim.y - 1 - blockIdx.y), static_cast<int>(blockIdx.x)};
    return {static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y)};
  }
};

}  // namespace vireo::cuda
