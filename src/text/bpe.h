// Byte-pair merging: repeatedly join the adjacent pair of lowest rank, the leftmost of equals, until no pair
// has a rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace vireo {

struct Merge {
  uint32_t rank;
  int32_t id;  // of the joined token
};

// (left id, right id) -> Merge: open addressing, at most two thirds full.
class MergeTable {
 public:
  explicit MergeTable(size_t capacity = 0);
  // At most `capacity` distinct pairs; a pair given again takes the later rank, as in the reference.
  void set(int32_t left, int32_t right, Merge merge);
  const Merge* find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  size_t slot_of(uint64_t key) const;

  std::vector<Slot> slots_;
  uint64_t seed_;
  int shift_;
};

class Bpe {
 public:
  Bpe() = default;
  Bpe(const std::array<int32_t, 256>& byte_ids, MergeTable merges) : byte_ids_(byte_ids), merges_(std::move(merges)) {}

  // Memory of one thread's encoding, reused from piece to piece.
  class Scratch {
    friend class Bpe;
    struct Symbol {
      int32_t id;  // kGone once joined to its left neighbour
      uint32_t previous, next;
    };
    struct Candidate {
      uint32_t rank, at;
      int32_t left, right;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Appends the tokens of one piece of the pre-tokenizer, below 4 GiB; n log n in its length.
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  void propose(Scratch& scratch, uint32_t at) const;
  void join(Scratch& scratch, uint32_t at, int32_t id) const;

  std::array<int32_t, 256> byte_ids_{};
  MergeTable merges_;
};

}  // namespace vireo
