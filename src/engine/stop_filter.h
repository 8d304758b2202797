// Stop strings in a stream of text: what may be the beginning of one is held back until it is decided.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace vireo {

class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // The text that is now certain to be shown. After a stop string was found: what came before it, then nothing more.
  std::string push(const std::string& text);
  // What is still held; the text has ended.
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace vireo
