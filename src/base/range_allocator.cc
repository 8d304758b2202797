// SPDX-License-Identifier: Apache-2.0
#include "base/range_allocator.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace vireo {

RangeAllocator::RangeAllocator(uint64_t size) {
  CHECK(size % kAlignment == 0);
  if (size > 0) gaps_[0] = size;
}

std::optional<uint64_t> RangeAllocator::take(uint64_t size) {
  size = std::max<uint64_t>(1, (size + kAlignment - 1) / kAlignment) * kAlignment;
  const auto gap = std::find_if(gaps_.begin(), gaps_.end(), [&](const auto& g) { return g.second >= size; });
  if (gap == gaps_.end()) return std::nullopt;
  const auto [offset, room] = *gap;
  gaps_.erase(gap);
  if (room > size) gaps_[offset + size] = room - size;
  taken_[offset] = size;
  used_ += size;
  most_used_ = std::max(most_used_, used_);
  return offset;
}

void RangeAllocator::give_back(uint64_t offset) {
  const auto piece = taken_.find(offset);
  CHECK(piece != taken_.end());
  uint64_t size = piece->second;
  taken_.erase(piece);
  used_ -= size;
  auto after = gaps_.lower_bound(offset);
  if (after != gaps_.end() && after->first == offset + size) {
    size += after->second;
    after = gaps_.erase(after);
  }
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  gaps_[offset] = size;
}

}  // namespace vireo
