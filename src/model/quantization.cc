// SPDX-License-Identifier: Apache-2.0
#include "model/quantization.h"

#include <fmt/format.h>

#include <limits>
#include <set>

#include "files/quote.h"
#include "vireo/error.h"

namespace vireo {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr char kAgain[] = "write the folder again with `vireo quantize`";

[[noreturn]] void refuse(const std::string& what, const std::string& reason) {
  throw Error(ErrorKind::kInput, fmt::format("{}: {}", what, reason));
}

void require_int(const Json& json, const char* key, int64_t only, const std::string& what) {
  const int64_t value = get_int(json, key, what, 0, std::numeric_limits<int64_t>::max());
  if (value != only) refuse(what, fmt::format("'{}' is {}, but only {} is built: {}", key, value, only, kAgain));
}

std::set<std::string> keys_of(int64_t layers) {
  std::set<std::string> keys;
  for (const std::string& name : tier_projections()) {
    keys.insert(name);
    for (int64_t layer = 0; name != "lm_head" && layer < layers; ++layer)
      keys.insert(fmt::format("L{}.{}", layer, name));
  }
  return keys;
}

Tier read_tier(const std::string& key, const Json& value, const std::string& what) {
  const std::string name = value.is_string() ? value.get<std::string>() : value.dump();
  const auto tier = find_tier(name);
  if (tier) return *tier;
  refuse(what, fmt::format("'tiers' has {} as {}, but the tiers are {}: {}", key, in_quotes(name),
                           fmt::join(tier_names(), ", "), kAgain));
}

}  // namespace

Quantization read_quantization(const Json& json, int64_t layers, const std::string& what) {
  require_int(json, "format_version", kFormatVersion, what);
  require_int(json, "group_size", kTierGroup, what);
  Quantization q;
  q.keeps_bf16 = get_bool_or(json, "keep_bf16", what, false);
  q.experts_out_in = get_bool_or(json, "experts_out_in", what, false);
  if (const Json* folded = find_key(json, "folded")) {
    if (!folded->is_object())
      refuse(what, fmt::format("'folded' is {}, not an object: {}", in_quotes(folded->dump()), kAgain));
    const std::string where = what + ", folded";
    q.folded = {get_string_or(*folded, "calibration", where, ""),
                get_int(*folded, "conversations", where, 0, std::numeric_limits<int64_t>::max())};
    if (q.folded->calibration.empty()) refuse(where, fmt::format("'calibration' is missing or empty: {}", kAgain));
  }
  const Json* tiers = find_key(json, "tiers");
  if (!tiers || !tiers->is_object()) refuse(what, fmt::format("'tiers' is missing or not an object: {}", kAgain));
  const std::set<std::string> keys = keys_of(layers);
  for (const auto& [key, value] : tiers->items()) {
    if (keys.count(key) == 0) {
      refuse(what, fmt::format("'tiers' names {}, which is no projection of this model of {} layers: {}",
                               in_quotes(key), layers, kAgain));
    }
    q.tiers[key] = read_tier(key, value, what);
  }
  return q;
}

Json quantization_json(const Quantization& q) {
  Json tiers = Json::object();
  for (const auto& [key, tier] : q.tiers) tiers[key] = tier_name(tier);
  Json json = {{"quant_method", kQuantMethod},
               {"format_version", kFormatVersion},
               {"group_size", kTierGroup},
               {"keep_bf16", q.keeps_bf16}};
  if (q.experts_out_in) json["experts_out_in"] = true;
  json["tiers"] = tiers;
  return json;
}

}  // namespace vireo
