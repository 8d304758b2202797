// SPDX-License-Identifier: Apache-2.0
#include "line_editor.h"

#include <editline/readline.h>
#include <langinfo.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "terminal.h"

namespace vireo::app {
namespace {

constexpr int kCtrlC = 3, kCtrlZ = 26;

bool g_interrupted = false;

int on_interrupt(int, int) {
  g_interrupted = true;
  rl_done = 1;
  return 0;
}

int on_suspend(int, int) {
  rl_deprep_terminal();
  std::raise(SIGTSTP);
  rl_prep_terminal(1);
  rl_forced_update_display();
  return 0;
}

// readline() begins with the terminal's own settings, so this is done for every line: keys are keys before the prompt is
// shown.
int on_prompt() {
  rl_parse_and_bind("setty -d -isig");
  rl_prep_terminal(1);
  return 0;
}

// The editor counts and deletes characters as the locale says; in C it would drop all but ASCII.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

// XDG_STATE_HOME/vireo/history, else below ~/.local/state; nothing where there is no home.
std::optional<std::filesystem::path> history_file() {
  std::filesystem::path folder;
  if (const char* state = std::getenv("XDG_STATE_HOME"); state && *state) {
    folder = state;
  } else if (const char* home = std::getenv("HOME"); home && *home) {
    folder = std::filesystem::path(home) / ".local/state";
  } else {
    return std::nullopt;
  }
  std::error_code error;
  std::filesystem::create_directories(folder / "vireo", error);
  if (error) return std::nullopt;
  return folder / "vireo/history";
}

}  // namespace

LineEditor::LineEditor() : terminal_(isatty(STDIN_FILENO) && stdout_is_terminal()) {
  if (!terminal_) return;
  use_utf8();
  rl_initialize();
  rl_add_defun("vireo-interrupt", on_interrupt, kCtrlC);
  rl_add_defun("vireo-suspend", on_suspend, kCtrlZ);
  rl_pre_input_hook = on_prompt;
  using_history();
  stifle_history(1000);
  history_ = history_file();
  if (history_) read_history(history_->c_str());
}

LineEditor::End LineEditor::read(const char* prompt, std::string& line) {
  if (!terminal_) return std::getline(std::cin, line) ? End::kLine : End::kClosed;
  g_interrupted = false;
  if (char* text = readline(prompt)) {
    line = text;
    std::free(text);
    return End::kLine;
  }
  std::cout << (g_interrupted ? "^C" : "") << std::endl;
  return g_interrupted ? End::kInterrupted : End::kClosed;
}

void LineEditor::remember(const std::string& text) {
  const bool blank = text.find_first_not_of(" \t") == std::string::npos;
  if (!terminal_ || blank || text == last_ || text.find('\n') != std::string::npos) return;
  last_ = text;
  add_history(text.c_str());
  if (history_) write_history(history_->c_str());
}

}  // namespace vireo::app
