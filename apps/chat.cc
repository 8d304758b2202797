// vireo chat: a conversation in the terminal. Lines that begin with / are commands; everything else goes to the model.
// SPDX-License-Identifier: Apache-2.0
#include <editline/readline.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "conversation.h"
#include "terminal.h"

namespace vireo::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp =
    R"(Type a question and press Return. More than one line: begin with """ and end with """, or end a line with \.
  /image FILE          a picture for the next question; any number of times
  /video DIR|GIF [FPS] a clip for the next question
  /system TEXT         a system message; begins a new conversation
  /clear               forget the conversation
  /save FILE           write the conversation as a JSON file of messages (vireo run --messages reads it)
  /stats               show sizes and times after each answer, or stop showing them
  /help                this page
  /quit                leave; Ctrl-D does the same
Ctrl-C stops the answer.)";

struct ChatOptions {
  Options engine;
  Sampling sampling;
  std::string system;
  std::vector<std::string> stop;
  int max_new_tokens = 1024;
  bool stats = false;
};

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n"), last = text.find_last_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
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

// Lines of a terminal (edited, with history) or of a file.
class Lines {
 public:
  Lines() : terminal_(isatty(STDIN_FILENO) && stdout_is_terminal()), file_(terminal_ ? history_file() : std::nullopt) {
    if (!terminal_) return;
    using_history();
    stifle_history(1000);
    if (file_) read_history(file_->c_str());
  }

  // Nothing at the end of the input.
  std::optional<std::string> next(const char* prompt) {
    std::string line;
    if (!terminal_) {
      if (!std::getline(std::cin, line)) return std::nullopt;
      return line;
    }
    char* text = readline(prompt);
    if (!text) return std::nullopt;
    line = text;
    std::free(text);
    return line;
  }

  void remember(const std::string& text) {
    if (!terminal_ || trimmed(text).empty() || text.find('\n') != std::string::npos) return;
    add_history(text.c_str());
    if (file_) write_history(file_->c_str());
  }

 private:
  bool terminal_;
  std::optional<std::filesystem::path> file_;
};

// A whole question: several lines where they are quoted by """ or joined by a backslash.
std::optional<std::string> read_question(Lines& lines) {
  auto line = lines.next("> ");
  if (!line) return std::nullopt;
  std::string text = *line;
  if (trimmed(text).rfind("\"\"\"", 0) == 0) {
    text = trimmed(text).substr(3);
    while (text.find("\"\"\"") == std::string::npos) {
      line = lines.next("... ");
      if (!line) break;
      text += (text.empty() ? "" : "\n") + *line;
    }
    return text.substr(0, text.find("\"\"\""));
  }
  while (!text.empty() && text.back() == '\\') {
    text.back() = '\n';
    line = lines.next("... ");
    if (!line) break;
    text += *line;
  }
  return text;
}

class Chat {
 public:
  Chat(const ChatOptions& options, Engine& engine, SignalGuard& signals)
      : options_(options), engine_(engine), signals_(signals), stats_(options.stats) {
    clear(options.system);
  }

  // False when the conversation is over.
  bool take(const std::string& text) {
    const std::string line = trimmed(text);
    if (line.empty()) return true;
    if (line[0] != '/') {
      ask(text);
      return true;
    }
    const size_t space = line.find(' ');
    const std::string command = line.substr(0, space);
    return run(command, space == std::string::npos ? "" : trimmed(line.substr(space)));
  }

 private:
  bool run(const std::string& command, const std::string& argument) {
    if (command == "/quit" || command == "/exit" || command == "/bye") return false;
    if (command == "/help" || command == "/?") {
      say(kHelp);
    } else if (command == "/clear") {
      clear(system_);
      say("the conversation is forgotten");
    } else if (command == "/system") {
      clear(argument);
      say(argument.empty() ? "no system message" : "a new conversation with this system message");
    } else if (command == "/image") {
      add_image(argument);
    } else if (command == "/video") {
      add_video(argument);
    } else if (command == "/save") {
      save(argument);
    } else if (command == "/stats") {
      stats_ = !stats_;
    } else {
      print_error(command + " is not a command: /help lists them");
    }
    return true;
  }

  static void say(const std::string& text) { std::fprintf(stderr, "%s\n", dim(text).c_str()); }

  void clear(const std::string& system) {
    system_ = system;
    messages_.clear();
    pending_.clear();
    if (!system.empty()) messages_.push_back({.role = "system", .content = {{.text = system}}});
  }

  void add_image(const std::string& path) {
    if (path.empty()) return print_error("/image needs a file");
    if (!std::filesystem::is_regular_file(path))
      return print_error(path + " is not a file: give the path of a picture");
    pending_.push_back({.kind = Part::Kind::kImage, .image = {.path = path}});
    say(fmt::format("{} goes with the next question", path));
  }

  void add_video(const std::string& argument) {
    const size_t space = argument.rfind(' ');
    double fps = space == std::string::npos ? 0 : std::strtod(argument.c_str() + space, nullptr);
    const std::string path = fps > 0 ? trimmed(argument.substr(0, space)) : argument;
    try {
      pending_.push_back(video_part(path, fps, "/video"));
    } catch (const Error& e) {
      return print_error(e.what());
    }
    say(fmt::format("{} goes with the next question", path));
  }

  void ask(const std::string& text) {
    Message user{.role = "user", .content = pending_};
    user.content.push_back({.text = text});
    messages_.push_back(std::move(user));
    Request request{.messages = messages_,
                    .max_new_tokens = options_.max_new_tokens,
                    .sampling = options_.sampling,
                    .stop = options_.stop};
    std::string shown;
    try {
      StageLine stage;
      const Answer a = engine_.generate(
          request,
          [&](std::string_view piece) {
            stage.clear();
            shown += piece;
            std::cout << piece << std::flush;
            return true;
          },
          [&](const char* name, int64_t done, int64_t total) { stage.show(name, done, total); });
      stage.clear();
      std::cout << std::endl;
      for (const std::string& note : a.notes) print_note(note);
      if (stats_) print_stats(engine_, a);
      messages_.push_back({.role = "assistant", .content = {{.text = a.text}}});
      pending_.clear();
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kCancelled) {
        messages_.pop_back();
        return print_error(e.what());
      }
      // What was shown stays part of the conversation.
      signals_.forget();
      std::cout << std::endl;
      say("stopped");
      messages_.push_back({.role = "assistant", .content = {{.text = shown}}});
      pending_.clear();
    }
  }

  static Json part_json(const Part& part) {
    if (part.kind == Part::Kind::kText) return {{"type", "text"}, {"text", part.text}};
    const auto absolute = [](const Picture& p) { return std::filesystem::absolute(p.path).string(); };
    if (part.kind == Part::Kind::kImage) return {{"type", "image"}, {"image", absolute(part.image)}};
    Json frames = Json::array();
    for (const Picture& p : part.video.frames) frames.push_back(absolute(p));
    Json j = {{"type", "video"}, {"video", part.video.gif ? Json(absolute(*part.video.gif)) : frames}};
    if (part.video.fps > 0) j["fps"] = part.video.fps;
    return j;
  }

  void save(const std::string& path) {
    if (path.empty()) return print_error("/save needs a file");
    Json messages = Json::array();
    for (const Message& m : messages_) {
      Json content = Json::array();
      for (const Part& part : m.content) content.push_back(part_json(part));
      messages.push_back({{"role", m.role}, {"content", content}});
    }
    std::ofstream file(path);
    file << Json{{"messages", messages}}.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
    if (!file.flush()) return print_error("cannot write " + path + ": is the folder there and writable?");
    say(fmt::format("{} messages written to {}", messages_.size(), path));
  }

  const ChatOptions& options_;
  Engine& engine_;
  SignalGuard& signals_;
  bool stats_;
  std::string system_;
  std::vector<Message> messages_;
  std::vector<Part> pending_;
};

int chat(const ChatOptions& o) {
  if (o.max_new_tokens < 1) {
    throw Error(ErrorKind::kUsage, fmt::format("--max-new-tokens {} is too small: use at least 1", o.max_new_tokens));
  }
  validate(o.engine);
  SignalGuard signals;
  const auto engine = load_with_progress(o.engine);
  signals.watch(engine.get());
  Chat conversation(o, *engine, signals);
  Lines lines;
  if (stderr_is_terminal())
    std::fprintf(stderr, "%s\n", dim(engine->info().device + "; /help lists the commands").c_str());
  for (;;) {
    signals.idle(true);
    const auto question = read_question(lines);
    signals.idle(false);
    if (!question) break;
    lines.remember(*question);
    if (!conversation.take(*question)) break;
  }
  return kDone;
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  auto o = std::make_shared<ChatOptions>();
  CLI::App* c = app.add_subcommand("chat", "a conversation in the terminal");
  c->add_option("--system", o->system, "a system message");
  c->add_option("-n,--max-new-tokens,--max-tokens", o->max_new_tokens, "longest answer, in tokens")
      ->capture_default_str();
  c->add_flag("--stats", o->stats, "sizes and times after each answer");
  add_sampling_options(*c, o->sampling, o->stop);
  add_engine_options(*c, o->engine);
  c->callback([o, &action] { action = [o] { return chat(*o); }; });
}

}  // namespace vireo::app
