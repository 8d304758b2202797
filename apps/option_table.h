// What the program's parser knows, as plain data: the completions and the manual page are written from it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace vireo::app {

struct OptionRow {
  std::vector<std::string> names;  // "-m", "--checkpoint", ...; empty: an argument without a name
  std::string argument;            // its name as an argument without a dash; empty: none
  std::string value;               // what follows it, e.g. FILE; empty: nothing does
  std::vector<std::string> choices;
  std::string text;
  std::string group;

  bool takes_files() const;
};

struct CommandRow {
  std::string name, text, footer;
  std::vector<OptionRow> options;  // in the order of --help; hidden ones are left out
};

// The subcommands that --help shows.
std::vector<CommandRow> command_rows(const CLI::App& app);
CommandRow command_row(const CLI::App& command);

std::string join(const std::vector<std::string>& words, const std::string& separator);

}  // namespace vireo::app
