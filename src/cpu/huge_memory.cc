// SPDX-License-Identifier: Apache-2.0
#include "cpu/huge_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>

#include "vireo/error.h"

namespace vireo::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSlab = size_t{64} << 20;

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

HugeMemory::~HugeMemory() {
  for (const Slab& s : slabs_) munmap(s.data, s.size);
}

void HugeMemory::grow(size_t bytes) {
  const size_t size = round_up(std::max(bytes, kSlab), kHugePage) + kHugePage;  // room to align
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    throw Error(ErrorKind::kCapacity, "cannot reserve " + std::to_string(size >> 20) +
                                          " MiB of memory for weights: free some, or use a smaller checkpoint");
  }
  madvise(data, size, MADV_HUGEPAGE);  // a wish: without it pages are small and all else is the same
  const size_t skip = round_up(reinterpret_cast<size_t>(data), kHugePage) - reinterpret_cast<size_t>(data);
  slabs_.push_back({static_cast<char*>(data), size, skip});
}

void* HugeMemory::take(size_t bytes) {
  bytes = round_up(bytes, 64);
  if (slabs_.empty() || slabs_.back().size - slabs_.back().used < bytes) grow(bytes);
  Slab& slab = slabs_.back();
  void* data = slab.data + slab.used;
  slab.used += bytes;
  return data;
}

}  // namespace vireo::cpu
