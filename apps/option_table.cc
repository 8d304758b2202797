// SPDX-License-Identifier: Apache-2.0
#include "option_table.h"

#include <CLI/CLI.hpp>
#include <sstream>

namespace vireo::app {
namespace {

// A set of allowed values stands in CLI11's type as "TEXT:{a,b}".
void split_type(const std::string& type, OptionRow& row) {
  const size_t open = type.find(":{");
  row.value = type.substr(0, open);
  if (open == std::string::npos) return;
  std::istringstream list(type.substr(open + 2, type.rfind('}') - open - 2));
  for (std::string choice; std::getline(list, choice, ',');) row.choices.push_back(choice);
}

OptionRow option_row(const CLI::Option& option) {
  OptionRow row{.text = option.get_description(), .group = option.get_group()};
  for (const std::string& name : option.get_snames()) row.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) row.names.push_back("--" + name);
  if (option.get_positional()) row.argument = option.get_name(true);
  if (option.get_items_expected_max() > 0) split_type(option.get_type_name(), row);
  if (!option.get_default_str().empty()) row.text += " (default: " + option.get_default_str() + ")";
  return row;
}

}  // namespace

bool OptionRow::takes_files() const {
  return value.find("FILE") != std::string::npos || value.find("DIR") != std::string::npos;
}

CommandRow command_row(const CLI::App& command) {
  CommandRow row{command.get_name(), command.get_description(), command.get_footer(), {}};
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_group().empty()) row.options.push_back(option_row(*option));
  }
  return row;
}

std::vector<CommandRow> command_rows(const CLI::App& app) {
  std::vector<CommandRow> rows;
  for (const CLI::App* command : app.get_subcommands(std::function<bool(const CLI::App*)>())) {
    if (!command->get_name().empty() && !command->get_group().empty()) rows.push_back(command_row(*command));
  }
  return rows;
}

std::string join(const std::vector<std::string>& words, const std::string& separator) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : separator) + word;
  return out;
}

}  // namespace vireo::app
