// SPDX-License-Identifier: Apache-2.0
#include "engine/stop_filter.h"

#include <algorithm>
#include <utility>

namespace vireo {
namespace {

// Length of the longest end of `text` with which `stop` begins.
size_t overlap(const std::string& text, const std::string& stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.compare(text.size() - n, n, stop, 0, n) == 0) return n;
  }
  return 0;
}

}  // namespace

std::string StopFilter::push(const std::string& text) {
  if (stopped_) return "";
  held_ += text;
  size_t first = std::string::npos, keep = 0;
  for (const std::string& stop : stops_) {
    if (stop.empty()) continue;
    first = std::min(first, held_.find(stop));
    keep = std::max(keep, overlap(held_, stop));
  }
  if (first != std::string::npos) {
    stopped_ = true;
    return std::exchange(held_, "").substr(0, first);
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string StopFilter::flush() {
  return stopped_ ? "" : std::exchange(held_, "");
}

}  // namespace vireo
