// SPDX-License-Identifier: Apache-2.0
#include "stored_tiers.h"

#include <fmt/format.h>

#include <iostream>

namespace vireo::app {

nlohmann::ordered_json tiers_json(const std::vector<StoredTier>& tiers) {
  auto list = nlohmann::ordered_json::array();
  for (const StoredTier& t : tiers) {
    list.push_back({{"projection", t.projection}, {"tier", t.tier}, {"matrices", t.matrices}, {"bytes", t.bytes}});
  }
  return list;
}

void print_tiers(const std::vector<StoredTier>& tiers) {
  for (const StoredTier& t : tiers) {
    std::cout << fmt::format("          {:<9} {:<5} {:>4} {}, {:.1f} MB\n", t.projection, t.tier, t.matrices,
                             t.matrices == 1 ? "matrix" : "matrices", static_cast<double>(t.bytes) / 1e6);
  }
}

}  // namespace vireo::app
