// SPDX-License-Identifier: Apache-2.0
#include "base/host_info.h"

#include <fstream>
#include <string>

namespace vireo {

std::optional<uint64_t> available_host_memory() {
  std::ifstream info("/proc/meminfo");
  std::string key, unit;
  uint64_t kib = 0;
  while (info >> key >> kib) {
    std::getline(info, unit);
    if (key == "MemAvailable:") return kib << 10;
  }
  return std::nullopt;
}

}  // namespace vireo
