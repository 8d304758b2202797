// vireo completion bash|zsh|fish: prints a script with which the shell completes subcommands, options and files.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "commands.h"
#include "option_table.h"
#include "terminal.h"

namespace vireo::app {
namespace {

std::string with_escapes(const std::string& text, const std::string& special, const std::string& before) {
  std::string out;
  for (char c : text) {
    if (special.find(c) != std::string::npos) out += before;
    out += c;
  }
  return out;
}

// The inside of a single-quoted word of bash and zsh.
std::string shell_quoted(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

std::string fish_quoted(const std::string& text) {
  return "'" + with_escapes(text, "\\'", "\\") + "'";
}

std::string names_of(const CommandRow& command) {
  std::vector<std::string> names;
  for (const OptionRow& o : command.options) names.insert(names.end(), o.names.begin(), o.names.end());
  return join(names, " ");
}

std::string names_of(const std::vector<CommandRow>& commands) {
  std::vector<std::string> names;
  for (const CommandRow& c : commands) names.push_back(c.name);
  return join(names, " ");
}

// What completes the value of one option, as the body of a case of bash.
std::string bash_value(const OptionRow& o) {
  if (!o.choices.empty()) return fmt::format("_vireo_words '{}'", shell_quoted(join(o.choices, " ")));
  return o.takes_files() ? "compopt -o default" : ":";
}

std::string bash_command(const CommandRow& c) {
  std::string out = fmt::format("    {})\n      case $last in\n", c.name);
  std::string argument;
  for (const OptionRow& o : c.options) {
    if (!o.names.empty() && !o.value.empty())
      out += fmt::format("        {}) {}; return ;;\n", join(o.names, " | "), bash_value(o));
    if (!o.argument.empty()) argument = bash_value(o);
  }
  out += "      esac\n";
  if (!argument.empty()) out += fmt::format("      if [[ $word != -* ]]; then {}; return; fi\n", argument);
  return out + fmt::format("      _vireo_words '{}' ;;\n", names_of(c));
}

std::string bash_script(const CommandRow& top, const std::vector<CommandRow>& commands) {
  std::string out = R"sh(# Completion of vireo for bash: eval "$(vireo completion bash)"
_vireo_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$word"); }
_vireo() {
  local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
)sh";
  out += fmt::format("  if ((COMP_CWORD == 1)); then _vireo_words '{} {}'; return; fi\n", names_of(commands),
                     names_of(top));
  out += "  case ${COMP_WORDS[1]} in\n";
  for (const CommandRow& c : commands) out += bash_command(c);
  return out + "  esac\n}\ncomplete -F _vireo vireo\n";
}

std::string zsh_text(const std::string& text) {
  return shell_quoted(with_escapes(text, "[]:\\", "\\"));
}

std::string zsh_value(const OptionRow& o) {
  if (o.value.empty()) return "";
  const std::string action = !o.choices.empty() ? "(" + join(o.choices, " ") + ")" : o.takes_files() ? "_files" : " ";
  return fmt::format(":{}:{}", zsh_text(o.value), shell_quoted(action));
}

std::string zsh_option(const OptionRow& o) {
  std::string out;
  for (const std::string& name : o.names)
    out += fmt::format(" \\\n        '*{}[{}]{}'", name, zsh_text(o.text), zsh_value(o));
  if (!o.argument.empty()) out += fmt::format(" \\\n        '*{}'", zsh_value(o));
  return out;
}

std::string zsh_arguments(const CommandRow& command) {
  std::string out = "_arguments";
  for (const OptionRow& o : command.options) out += zsh_option(o);
  return out;
}

std::string zsh_script(const CommandRow& top, const std::vector<CommandRow>& commands) {
  std::string out = R"sh(#compdef vireo
# Completion of vireo for zsh: eval "$(vireo completion zsh)", or this as the file _vireo in a folder of fpath.
_vireo() {
  if ((CURRENT == 2)); then
    local -a commands=(
)sh";
  for (const CommandRow& c : commands)
    out += fmt::format("      '{}:{}'\n", c.name, shell_quoted(with_escapes(c.text, ":\\", "\\")));
  out += "    )\n    _describe command commands\n    " + zsh_arguments(top) + "\n    return\n  fi\n";
  out += "  shift words\n  ((CURRENT--))\n  case $words[1] in\n";
  for (const CommandRow& c : commands) out += fmt::format("    {}) {} ;;\n", c.name, zsh_arguments(c));
  return out + R"sh(  esac
}
if [[ $funcstack[1] == _vireo ]]; then _vireo "$@"; else compdef _vireo vireo; fi
)sh";
}

std::string fish_lines(const std::string& condition, const OptionRow& o) {
  const std::string start = fmt::format("complete -c vireo -n {}", fish_quoted(condition));
  const std::string choices = o.choices.empty() ? "" : " -a " + fish_quoted(join(o.choices, " "));
  std::string out;
  if (!o.names.empty()) {
    out = start;
    for (const std::string& name : o.names)
      out += name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
    if (!o.value.empty()) out += (o.takes_files() ? " -r -F" : " -x") + choices;
    out += fmt::format(" -d {}\n", fish_quoted(o.text));
  }
  if (!o.argument.empty()) out += start + (o.takes_files() ? " -F" : choices) + "\n";
  return out;
}

std::string fish_script(const CommandRow& top, const std::vector<CommandRow>& commands) {
  std::string out = R"(# Completion of vireo for fish: vireo completion fish | source
complete -c vireo -f
)";
  for (const OptionRow& o : top.options) out += fish_lines("__fish_use_subcommand", o);
  for (const CommandRow& c : commands) {
    out += fmt::format("complete -c vireo -n __fish_use_subcommand -a {} -d {}\n", c.name, fish_quoted(c.text));
    for (const OptionRow& o : c.options) out += fish_lines("__fish_seen_subcommand_from " + c.name, o);
  }
  return out;
}

int print_completion(const CLI::App& app, const std::string& shell) {
  const CommandRow top = command_row(app);
  const std::vector<CommandRow> commands = command_rows(app);
  std::cout << (shell == "bash"  ? bash_script(top, commands)
                : shell == "zsh" ? zsh_script(top, commands)
                                 : fish_script(top, commands));
  flush_stdout();
  return kDone;
}

}  // namespace

void add_completion(CLI::App& app, Action& action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* c = app.add_subcommand("completion", "print the completion script of a shell");
  c->add_option("shell", *shell, "the shell")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>{"bash", "zsh", "fish"}));
  c->callback([shell, &app, &action] { action = [shell, &app] { return print_completion(app, *shell); }; });
}

}  // namespace vireo::app
