// Merging against a plain scan for the lowest rank, and in time.
// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <numeric>
#include <random>
#include <string>

namespace vireo {
namespace {

using Ids = std::vector<int32_t>;
using Pairs = std::map<std::pair<int32_t, int32_t>, Merge>;

std::array<int32_t, 256> bytes_as_ids() {
  std::array<int32_t, 256> ids;
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

Bpe bpe_of(const Pairs& pairs) {
  MergeTable table(pairs.size());
  for (const auto& [pair, merge] : pairs) table.set(pair.first, pair.second, merge);
  return Bpe(bytes_as_ids(), std::move(table));
}

Ids encode(const Bpe& bpe, const std::string& piece) {
  Bpe::Scratch scratch;
  Ids ids;
  bpe.encode(piece, scratch, ids);
  return ids;
}

Ids encode_by_scan(const Pairs& pairs, const std::string& piece) {
  Ids ids;
  for (const char byte : piece) ids.push_back(static_cast<unsigned char>(byte));
  for (;;) {
    const Merge* best = nullptr;
    size_t place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto it = pairs.find({ids[i], ids[i + 1]});
      if (it == pairs.end() || (best != nullptr && best->rank <= it->second.rank)) continue;
      best = &it->second;
      place = i;
    }
    if (best == nullptr) return ids;
    ids[place] = best->id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

TEST(Bpe, LowestRankFirstLeftmostOfEquals) {
  const Pairs pairs = {{{'a', 'b'}, {1, 300}}, {{'b', 'c'}, {0, 301}}, {{'a', 'a'}, {2, 302}}};
  const Bpe bpe = bpe_of(pairs);
  EXPECT_EQ(encode(bpe, "abc"), Ids({'a', 301}));
  EXPECT_EQ(encode(bpe, "aaa"), Ids({302, 'a'}));
  EXPECT_EQ(encode(bpe, "x"), Ids({'x'}));
  EXPECT_EQ(encode(bpe, ""), Ids());
  EXPECT_EQ(encode(Bpe(bytes_as_ids(), MergeTable()), "\xFF\x01"), Ids({255, 1}));
}

TEST(Bpe, AgreesWithThePlainScan) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Pairs pairs;
    Ids known = {'a', 'b', 'c'};
    for (uint32_t rank = 0; rank < 20; ++rank) {
      const auto pair = std::pair(known[random() % known.size()], known[random() % known.size()]);
      const auto id = static_cast<int32_t>(300 + rank);
      if (pairs.try_emplace(pair, Merge{rank, id}).second) known.push_back(id);
    }
    const Bpe bpe = bpe_of(pairs);
    std::string piece;
    for (unsigned n = random() % 60; n > 0; --n) piece += static_cast<char>('a' + random() % 3);
    EXPECT_EQ(encode(bpe, piece), encode_by_scan(pairs, piece)) << piece;
  }
}

TEST(Bpe, LaterRankOfTheSamePairCounts) {
  MergeTable table(2);
  table.set(1, 2, {5, 9});
  table.set(1, 2, {7, 9});
  EXPECT_EQ(table.find(1, 2)->rank, 7u);
  EXPECT_EQ(table.find(2, 1), nullptr);
}

TEST(Bpe, AMegabyteWithoutASplitIsNotQuadratic) {
  const Bpe bpe = bpe_of({{{'a', 'a'}, {0, 300}}, {{300, 300}, {1, 301}}, {{301, 301}, {2, 302}}});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(encode(bpe, std::string(1 << 20, 'a')), Ids(1 << 17, 302));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace vireo
