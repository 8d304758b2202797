// vireo manual: prints the manual page vireo(1) as roff, for the build to install.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <sstream>

#include "commands.h"
#include "option_table.h"
#include "terminal.h"

namespace vireo::app {
namespace {

constexpr const char* kOwnGroup = "Options";  // CLI11's name for the options of one command alone

constexpr const char* kEnvironment = R"(.SH ENVIRONMENT
.TP
.BR HF_HUB_CACHE ", " HF_HOME ", " XDG_CACHE_HOME
where the local Hugging Face cache is, the first that is set: itself, the folder of its
.IR hub ,
or the folder of
.IR huggingface/hub .
.TP
.BR NO_COLOR ", " TERM=dumb
no colours
)";

// Text of a line, safe wherever it stands.
std::string roff(const std::string& text) {
  std::string out = text.empty() || (text[0] != '.' && text[0] != '\'') ? "" : "\\&";
  for (char c : text) {
    switch (c) {
      case '\\':
        out += "\\(rs";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '"':
        out += "\\(dq";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string roff_option(const OptionRow& o) {
  std::vector<std::string> names;
  for (const std::string& name : o.names) names.push_back("\\fB" + roff(name) + "\\fR");
  if (names.empty()) names.push_back("\\fI" + roff(o.argument) + "\\fR");
  std::string head = join(names, ", ");
  if (!o.choices.empty()) {
    head += " " + roff(join(o.choices, "|"));
  } else if (!o.value.empty() && !o.names.empty()) {
    head += " \\fI" + roff(o.value) + "\\fR";
  }
  return fmt::format(".TP\n{}\n{}\n", head, roff(o.text));
}

std::string synopsis(const std::vector<CommandRow>& commands) {
  std::string out = ".SH SYNOPSIS\n";
  for (const CommandRow& c : commands)
    out += fmt::format("{}.B vireo {}\n.RI [ options ]\n", out.find(".B") == std::string::npos ? "" : ".br\n", c.name);
  return out;
}

// Options of a named group are those of several subcommands: they get a section of their own, once.
std::vector<CommandRow> shared_groups(const std::vector<CommandRow>& commands) {
  std::vector<CommandRow> groups;
  for (const CommandRow& c : commands) {
    for (const OptionRow& o : c.options) {
      if (o.group == kOwnGroup) continue;
      auto group = std::find_if(groups.begin(), groups.end(), [&](const CommandRow& g) { return g.name == o.group; });
      if (group == groups.end()) group = groups.insert(groups.end(), CommandRow{o.group, "", "", {}});
      const auto same = [&](const OptionRow& other) { return other.names == o.names; };
      if (std::none_of(group->options.begin(), group->options.end(), same)) group->options.push_back(o);
    }
  }
  return groups;
}

std::string command_section(const CommandRow& c) {
  std::string out = fmt::format(".SS vireo {}\n{}.\n", c.name, roff(c.text));
  std::vector<std::string> groups;
  for (const OptionRow& o : c.options) {
    if (o.group == kOwnGroup) {
      out += roff_option(o);
    } else if (std::find(groups.begin(), groups.end(), o.group) == groups.end()) {
      groups.push_back(o.group);
    }
  }
  for (const std::string& group : groups) out += fmt::format(".PP\nAnd the {} OPTIONS below.\n", upper(group));
  return out;
}

// A paragraph of the footer, "Title: text" or "Title:" and lines to be shown as they are, is a section.
std::string footer_section(const std::string& paragraph) {
  const size_t colon = paragraph.find(':');
  const size_t body = paragraph.find_first_not_of('\n', colon + 1);
  if (colon == std::string::npos || body == std::string::npos) return "";
  std::string out = fmt::format(".SH {}\n.nf\n", upper(roff(paragraph.substr(0, colon))));
  const bool prose = paragraph[colon + 1] != '\n';
  if (prose) out.resize(out.size() - 4);
  std::istringstream lines(paragraph.substr(prose ? body + 1 : body));
  for (std::string line; std::getline(lines, line);) out += roff(line) + "\n";
  return out + (prose ? "" : ".fi\n");
}

std::string footer_sections(const std::string& footer) {
  std::string out;
  for (size_t begin = 0; begin < footer.size();) {
    const size_t end = std::min(footer.find("\n\n", begin), footer.size());
    out += footer_section(footer.substr(begin, end - begin));
    begin = end + 2;
  }
  return out;
}

std::string manual(const CLI::App& app) {
  const CommandRow top = command_row(app);
  const std::vector<CommandRow> commands = command_rows(app);
  std::string out = fmt::format(
      ".\\\" SPDX-License-Identifier: Apache-2.0\n.TH VIREO 1 \"\" \"vireo {}\" \"User Commands\"\n", version());
  out += ".SH NAME\nvireo \\- answers questions about pictures and clips with Qwen3\\-VL\n" + synopsis(commands);
  out += fmt::format(".SH DESCRIPTION\n{}\n.SH OPTIONS\n", roff(top.text));
  for (const OptionRow& o : top.options) out += roff_option(o);
  out += ".SH COMMANDS\n";
  for (const CommandRow& c : commands) out += command_section(c);
  for (const CommandRow& group : shared_groups(commands)) {
    out += fmt::format(".SH {} OPTIONS\n", upper(roff(group.name)));
    for (const OptionRow& o : group.options) out += roff_option(o);
  }
  return out + kEnvironment + footer_sections(top.footer);
}

}  // namespace

void add_manual(CLI::App& app, Action& action) {
  CLI::App* c = app.add_subcommand("manual", "print the manual page as roff")->group("");
  c->callback([&app, &action] {
    action = [&app] {
      std::cout << manual(app);
      flush_stdout();
      return kDone;
    };
  });
}

}  // namespace vireo::app
