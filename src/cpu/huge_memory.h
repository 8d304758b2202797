// Memory for weights: large slabs in 2 MB pages where the system allows, handed out piece by piece and freed all at once. Streaming
// weights through 4 KB pages costs a fifth of the bandwidth.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace vireo::cpu {

class HugeMemory {
 public:
  HugeMemory() = default;
  ~HugeMemory();
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;

  // 64-byte aligned, zeroed. Throws Error(kCapacity).
  void* take(size_t bytes);

 private:
  struct Slab {
    char* data;
    size_t size;
    size_t used;
  };
  void grow(size_t bytes);
  std::vector<Slab> slabs_;
};

}  // namespace vireo::cpu
