// Hands out pieces of a range of offsets, first fit: the bookkeeping of an arena, whatever memory the range stands for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace vireo {

class RangeAllocator {
 public:
  static constexpr uint64_t kAlignment = 512;

  // `size` is a multiple of kAlignment.
  explicit RangeAllocator(uint64_t size);

  // The offset, a multiple of kAlignment, of `size` free bytes; nothing when no gap is large enough.
  std::optional<uint64_t> take(uint64_t size);
  // What take returned, once.
  void give_back(uint64_t offset);

  uint64_t used() const { return used_; }
  uint64_t most_used() const { return most_used_; }

 private:
  std::map<uint64_t, uint64_t> gaps_;   // offset to size; no two touch
  std::map<uint64_t, uint64_t> taken_;  // the same
  uint64_t used_ = 0, most_used_ = 0;
};

}  // namespace vireo
