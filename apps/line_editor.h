// The lines that a user types: edited and with history on a terminal, as they come from anything else.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace vireo::app {

class LineEditor {
 public:
  enum class End { kLine, kInterrupted, kClosed };  // Return, Ctrl-C, Ctrl-D

  LineEditor();

  // Ctrl-C comes from a terminal as a key, not as a signal, while this waits.
  End read(const char* prompt, std::string& line);
  // For the up arrow, here and in later runs; a text of several lines is left out.
  void remember(const std::string& text);

 private:
  bool terminal_;
  std::optional<std::filesystem::path> history_;
  std::string last_;
};

}  // namespace vireo::app
