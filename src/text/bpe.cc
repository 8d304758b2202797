// Symbols form a linked list over the bytes; a heap holds every pair that can be joined, and entries whose
// pair is no longer there are skipped as they surface.
// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "text/hash.h"

namespace vireo {
namespace {

constexpr uint64_t kFree = ~0ull;
constexpr int32_t kGone = -1;
constexpr uint32_t kNone = ~0u;

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(size_t capacity) : seed_(hash_seed()) {
  const size_t size = std::bit_ceil(std::max<size_t>(capacity + capacity / 2 + 1, 2));
  slots_.assign(size, Slot{kFree, {}});
  shift_ = 64 - std::countr_zero(size);
}

// Multiplicative hashing, then the next slots in order.
size_t MergeTable::slot_of(uint64_t key) const {
  size_t slot = (key ^ key >> 29) * seed_ >> shift_;
  while (slots_[slot].key != key && slots_[slot].key != kFree) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  slots_[slot_of(key)] = {key, merge};
}

const Merge* MergeTable::find(int32_t left, int32_t right) const {
  const Slot& slot = slots_[slot_of(key_of(left, right))];
  return slot.key == kFree ? nullptr : &slot.merge;
}

namespace {

struct LaterJoin {
  template <typename C>
  bool operator()(const C& a, const C& b) const {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  }
};

}  // namespace

// Offers the pair of the symbol `at` and its right neighbour, if there is a merge for it.
void Bpe::propose(Scratch& scratch, uint32_t at) const {
  const auto& left = scratch.symbols[at];
  if (left.next == kNone) return;
  const int32_t right = scratch.symbols[left.next].id;
  const Merge* merge = merges_.find(left.id, right);
  if (merge == nullptr) return;
  scratch.heap.push_back({merge->rank, at, left.id, right});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), LaterJoin{});
}

void Bpe::join(Scratch& scratch, uint32_t at, int32_t id) const {
  auto& symbols = scratch.symbols;
  const uint32_t gone = symbols[at].next;
  symbols[at].id = id;
  symbols[at].next = symbols[gone].next;
  symbols[gone].id = kGone;
  if (symbols[at].next != kNone) symbols[symbols[at].next].previous = at;
  if (symbols[at].previous != kNone) propose(scratch, symbols[at].previous);
  propose(scratch, at);
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  CHECK(piece.size() < kNone);
  auto& [symbols, heap] = scratch;
  symbols.clear();
  heap.clear();
  const auto size = static_cast<uint32_t>(piece.size());
  for (uint32_t i = 0; i < size; ++i) {
    symbols.push_back({byte_ids_[static_cast<unsigned char>(piece[i])], i - 1, i + 1 < size ? i + 1 : kNone});
  }
  for (uint32_t i = 0; i < size; ++i) propose(scratch, i);
  while (!heap.empty()) {
    const auto best = heap.front();
    std::pop_heap(heap.begin(), heap.end(), LaterJoin{});
    heap.pop_back();
    const auto& left = symbols[best.at];
    if (left.id != best.left || left.next == kNone || symbols[left.next].id != best.right) continue;
    join(scratch, best.at, merges_.find(best.left, best.right)->id);
  }
  for (uint32_t at = 0; at < size; at = symbols[at].next) ids.push_back(symbols[at].id);
}

}  // namespace vireo
