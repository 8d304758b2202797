// SPDX-License-Identifier: Apache-2.0
#include "terminal.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

namespace vireo::app {
namespace {

std::atomic<Engine*> g_engine{nullptr};
std::atomic<int> g_signal{0};
std::atomic<bool> g_cancels{true};

extern "C" void on_signal(int number) {
  Engine* engine = g_engine.load();
  if (!engine || !g_cancels.load() || g_signal.exchange(number) != 0) _exit(128 + number);
  engine->cancel();
}

const char* env(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

bool wants_colour() {
  const char* term = env("TERM");
  return stderr_is_terminal() && !env("NO_COLOR") && term && std::strcmp(term, "dumb") != 0;
}

std::string one_line(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '\n' || c == '\r' ? ' ' : c;
  return out;
}

}  // namespace

int exit_code(const Error& error) {
  return error.kind() == ErrorKind::kUsage ? kWrongUsage : kFailed;
}

const char* kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return "usage";
    case ErrorKind::kInput:
      return "input";
    case ErrorKind::kNotFound:
      return "not_found";
    case ErrorKind::kCapacity:
      return "capacity";
    case ErrorKind::kDevice:
      return "device";
    case ErrorKind::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

void print_error(const std::string& sentence) {
  std::fprintf(stderr, "vireo: %s\n", one_line(sentence).c_str());
}

void print_note(const std::string& sentence) {
  std::fprintf(stderr, "%s\n", dim("note: " + one_line(sentence)).c_str());
}

void flush_stdout() {
  if (std::cout.flush()) return;
  throw Error(ErrorKind::kInput, "cannot write to standard output: is the disk full?");
}

bool stdout_is_terminal() {
  return isatty(STDOUT_FILENO) != 0;
}
bool stderr_is_terminal() {
  return isatty(STDERR_FILENO) != 0;
}

std::string dim(const std::string& text) {
  return wants_colour() ? "\033[2m" + text + "\033[0m" : text;
}
std::string bold(const std::string& text) {
  return wants_colour() ? "\033[1m" + text + "\033[0m" : text;
}

std::filesystem::path hub_cache() {
  if (const char* folder = env("HF_HUB_CACHE")) return folder;
  if (const char* home = env("HF_HOME")) return std::filesystem::path(home) / "hub";
  if (const char* cache = env("XDG_CACHE_HOME")) return std::filesystem::path(cache) / "huggingface/hub";
  if (const char* home = env("HOME")) return std::filesystem::path(home) / ".cache/huggingface/hub";
  return {};
}

ProgressLine::~ProgressLine() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
}

void ProgressLine::show(uint64_t done, uint64_t total) {
  if (!stderr_is_terminal() || total == 0) return;
  using namespace std::chrono;
  const int64_t now = duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
  if (last_ms_ < 0) last_ms_ = now;
  if (now - last_ms_ < 100) return;
  last_ms_ = now;
  shown_ = true;
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(kWidth * done / total);
  std::string bar(static_cast<size_t>(filled), '#');
  bar.resize(kWidth, '.');
  std::fprintf(stderr, "\r%s [%s] %3d%%", what_.c_str(), bar.c_str(), static_cast<int>(100 * done / total));
  std::fflush(stderr);
}

SignalGuard::SignalGuard() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

SignalGuard::~SignalGuard() {
  g_engine = nullptr;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

void SignalGuard::enter(Phase phase) {
  std::signal(SIGINT, SIG_IGN);
  g_cancels = phase == Phase::kAnswer;
  if (phase != Phase::kBetween) std::signal(SIGINT, on_signal);
}

void SignalGuard::forget_interrupt() {
  int interrupt = SIGINT;
  g_signal.compare_exchange_strong(interrupt, 0);
}

void SignalGuard::watch(Engine* engine) {
  g_engine = engine;
}

int SignalGuard::exit_code() const {
  return g_signal.load() == 0 ? 0 : 128 + g_signal.load();
}

}  // namespace vireo::app
