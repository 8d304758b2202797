// SPDX-License-Identifier: Apache-2.0
#include "engine/power_mode.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

namespace vireo {
namespace {

// The number after `key` in a line; nothing where there is none.
std::optional<int> number_after(const std::string& line, const std::string& key) {
  const size_t at = line.find(key);
  if (at == std::string::npos) return std::nullopt;
  const char* begin = line.c_str() + at + key.size();
  char* end = nullptr;
  const long number = std::strtol(begin, &end, 10);
  if (end == begin || number < 0 || number > 999) return std::nullopt;
  return static_cast<int>(number);
}

// Names by number, of lines such as "< POWER_MODEL ID=0 NAME=MAXN >".
std::map<int, std::string> mode_names(const std::filesystem::path& configuration) {
  std::map<int, std::string> names;
  std::ifstream file(configuration);
  for (std::string line; std::getline(file, line);) {
    const size_t name = line.find("NAME=");
    if (line.find("POWER_MODEL") == std::string::npos || name == std::string::npos) continue;
    const size_t begin = name + 5;
    if (const auto id = number_after(line, " ID="))
      names[*id] = line.substr(begin, line.find_first_of(" >", begin) - begin);
  }
  return names;
}

bool is_fastest(const std::string& name) {
  return name.rfind("MAXN", 0) == 0;
}

}  // namespace

std::optional<Finding> power_mode(const std::filesystem::path& configuration, const std::filesystem::path& status) {
  std::string line;
  std::ifstream file(status);
  std::getline(file, line);
  const auto mode = number_after(line, "pmode:");  // "pmode:0002 fmode:quiet"
  const auto names = mode_names(configuration);
  const auto name = mode ? names.find(*mode) : names.end();
  if (name == names.end()) return std::nullopt;
  std::string text = fmt::format("mode {} ({})", name->first, name->second);
  const bool fast = is_fastest(name->second);
  for (const auto& [id, other] : names) {
    if (!fast && is_fastest(other)) text += fmt::format("; sudo nvpmodel -m {} lifts the limits ({})", id, other);
  }
  return Finding{fast ? Finding::Level::kOk : Finding::Level::kNote, "power", text};
}

}  // namespace vireo
