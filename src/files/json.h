// JSON from untrusted files: limits on size and depth, duplicate keys refused, errors that name the file and
// the place. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace vireo {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  size_t bytes = 64u << 20;
  int depth = 64;
};

// `what` names the source in errors ("config.json"). Rejects text after the value, a byte-order mark is
// skipped, NaN and Infinity are refused. Throws Error(kInput).
Json parse_json(std::string_view text, const std::string& what, const JsonLimits& limits = {});
Json read_json(const std::filesystem::path& path, const JsonLimits& limits = {});

// Whole small files. Throws Error(kNotFound, kInput, kCapacity).
std::string read_file(const std::filesystem::path& path, size_t max_bytes);

// Typed access for config files: a missing key (for the _or functions also a null) gives nullptr / the
// default, a key of the wrong type or out of range throws Error(kInput) naming `what`, the key, the value and
// the expected type.
const Json* find_key(const Json& object, std::string_view key);
int64_t get_int(const Json& object, std::string_view key, const std::string& what, int64_t min, int64_t max);
int64_t get_int_or(const Json& object, std::string_view key, const std::string& what, int64_t min, int64_t max,
                   int64_t fallback);
double get_double_or(const Json& object, std::string_view key, const std::string& what, double fallback);
bool get_bool_or(const Json& object, std::string_view key, const std::string& what, bool fallback);
std::string get_string_or(const Json& object, std::string_view key, const std::string& what,
                          const std::string& fallback);

// Python's json.dumps(value, ensure_ascii=False): ", " and ": " separators, key order kept, floats as repr
// prints them.
std::string python_dumps(const Json& value);

}  // namespace vireo
