// What every subcommand shares: colour and progress on a terminal, signals, the environment, and exit codes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "vireo/error.h"
#include "vireo/vireo.h"

namespace vireo::app {

enum ExitCode { kDone = 0, kFailed = 1, kWrongUsage = 2 };

int exit_code(const Error& error);
// "input", "usage", ...: for JSON.
const char* kind_name(ErrorKind kind);
// "vireo: sentence" on one line of stderr.
void print_error(const std::string& sentence);
void print_note(const std::string& sentence);
// Throws Error when what was printed so far did not get through to stdout.
void flush_stdout();

bool stdout_is_terminal();
bool stderr_is_terminal();
// Dims `text` on a terminal that wants colour (NO_COLOR, TERM=dumb).
std::string dim(const std::string& text);
std::string bold(const std::string& text);

// HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME or ~/.cache and huggingface/hub.
std::filesystem::path hub_cache();

// One line on stderr, redrawn at most ten times a second, only on a terminal; cleared at the end.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what) : what_(std::move(what)) {}
  ~ProgressLine();
  void show(uint64_t done, uint64_t total);

 private:
  std::string what_;
  int64_t last_ms_ = -1;
  bool shown_ = false;
};

// While it lives, SIGINT and SIGTERM cancel the engine (set by watch) once and end the process the second time. Before watch
// they end the process at once.
class SignalGuard {
 public:
  // Of a conversation: only during an answer do signals cancel. While a line is read they end the process at once, and
  // so they do in between, but for SIGINT, which is ignored.
  enum class Phase { kAnswer, kBetween, kRead };

  SignalGuard();
  ~SignalGuard();
  void watch(Engine* engine);
  void enter(Phase phase);
  // A SIGINT that has done its work.
  void forget_interrupt();
  // 130 or 143 after a signal, else 0.
  int exit_code() const;
};

}  // namespace vireo::app
