// vireo chat: a conversation in the terminal. Lines that begin with / are commands; everything else goes to the model.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "conversation.h"
#include "line_editor.h"
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
Ctrl-C stops the answer, or drops the line that is being typed.)";

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

// A whole question: several lines where they are quoted by """ or joined by a backslash.
LineEditor::End read_question(LineEditor& lines, std::string& text) {
  using End = LineEditor::End;
  constexpr const char* kQuotes = "\"\"\"";
  const End end = lines.read("> ", text);
  if (end != End::kLine) return end;
  const bool quoted = trimmed(text).rfind(kQuotes, 0) == 0;
  if (quoted) text = trimmed(text).substr(3);
  const auto open = [&] {
    return quoted ? text.find(kQuotes) == std::string::npos : !text.empty() && text.back() == '\\';
  };
  while (open()) {
    if (!quoted) text.pop_back();
    std::string line;
    const End next = lines.read("... ", line);
    if (next == End::kInterrupted) return next;
    if (next == End::kClosed) break;
    text += (text.empty() ? "" : "\n") + line;
  }
  if (quoted) {
    text.resize(std::min(text.find(kQuotes), text.size()));
    if (!text.empty() && text.back() == '\n') text.pop_back();
  }
  return End::kLine;
}

// A path as typed, dropped or completed in a terminal: as it is where there is such a file, else ~ and quoting as in a shell.
std::string typed_path(const std::string& text) {
  std::error_code error;
  if (std::filesystem::exists(text, error)) return text;
  std::string out;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != '\'' && c == '\\' && i + 1 < text.size()) {
      out += text[++i];
    } else if (quote ? c == quote : c == '\'' || c == '"') {
      quote = quote ? 0 : c;
    } else {
      out += c;
    }
  }
  const char* home = std::getenv("HOME");
  return home && text.rfind("~/", 0) == 0 ? home + out.substr(1) : out;
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
    if (line[0] != '/') return ask(text);
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
      add_image(typed_path(argument));
    } else if (command == "/video") {
      add_video(argument);
    } else if (command == "/save") {
      save(typed_path(argument));
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
    const std::string path = typed_path(fps > 0 ? trimmed(argument.substr(0, space)) : argument);
    try {
      pending_.push_back(video_part(path, fps, "/video"));
    } catch (const Error& e) {
      return print_error(e.what());
    }
    say(fmt::format("{} goes with the next question", path));
  }

  // False after a signal that ends the program.
  bool ask(const std::string& text) {
    Message user{.role = "user", .content = pending_};
    user.content.push_back({.text = text});
    messages_.push_back(std::move(user));
    std::string shown;
    try {
      const Answer a = answer(shown);
      signals_.enter(SignalGuard::Phase::kBetween);
      std::cout << std::endl;
      for (const std::string& note : a.notes) print_note(note);
      if (stats_) print_stats(engine_, a);
      messages_.push_back({.role = "assistant", .content = {{.text = a.text}}});
    } catch (const Error& e) {
      signals_.enter(SignalGuard::Phase::kBetween);
      if (!shown.empty() || e.kind() == ErrorKind::kCancelled) std::cout << std::endl;
      if (e.kind() != ErrorKind::kCancelled) {
        messages_.pop_back();
        print_error(e.what());
        if (!pending_.empty()) say("its pictures are forgotten: give them again");
      } else {
        // What was shown stays part of the conversation.
        say("stopped");
        messages_.push_back({.role = "assistant", .content = {{.text = shown}}});
      }
    }
    pending_.clear();
    signals_.forget_interrupt();
    return signals_.exit_code() == 0;
  }

  Answer answer(std::string& shown) {
    const Request request{.messages = messages_,
                          .max_new_tokens = options_.max_new_tokens,
                          .sampling = options_.sampling,
                          .stop = options_.stop};
    signals_.enter(SignalGuard::Phase::kAnswer);
    for (;;) {
      StageLine stage;
      try {
        return engine_.generate(
            request,
            [&](std::string_view piece) {
              stage.clear();
              shown += piece;
              std::cout << piece << std::flush;
              return true;
            },
            [&](const char* name, int64_t done, int64_t total) { stage.show(name, done, total); });
      } catch (const Error& e) {
        // A Ctrl-C that came too late for the answer before is no wish to stop this one.
        if (e.kind() != ErrorKind::kCancelled || signals_.exit_code() != 0) throw;
      }
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
  LineEditor lines;
  if (stderr_is_terminal())
    std::fprintf(stderr, "%s\n", dim(engine->info().device + "; /help lists the commands").c_str());
  for (;;) {
    std::string question;
    signals.enter(SignalGuard::Phase::kRead);
    const LineEditor::End end = read_question(lines, question);
    signals.enter(SignalGuard::Phase::kBetween);
    if (end == LineEditor::End::kClosed) break;
    if (end == LineEditor::End::kInterrupted) continue;
    lines.remember(question);
    if (!conversation.take(question)) break;
  }
  return signals.exit_code();
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
