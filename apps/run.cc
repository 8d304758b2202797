// vireo run: one question (or a file of conversations) to answers on stdout.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "conversation.h"
#include "terminal.h"
#include "vireo/tools.h"

namespace vireo::app {
namespace {

using Json = nlohmann::ordered_json;

struct RunOptions {
  Options engine;
  std::vector<std::string> images;
  std::string video, system, prompt, messages;
  std::optional<double> fps;
  std::optional<int> max_new_tokens;
  int benchmark = 0;
  bool json = false;
  bool stats = false;
  bool has_prompt = false;
  Sampling sampling;
  std::vector<std::string> stop;
};

bool is_lines(const RunOptions& o) {
  return std::filesystem::path(o.messages).extension() == ".jsonl";
}

[[noreturn]] void wrong_usage(const std::string& sentence) {
  throw Error(ErrorKind::kUsage, sentence);
}

Request request_of(const RunOptions& o) {
  Request request;
  if (o.max_new_tokens) request.max_new_tokens = *o.max_new_tokens;
  request.sampling = o.sampling;
  request.stop = o.stop;
  if (!o.system.empty()) request.messages.push_back({.role = "system", .content = {{.text = o.system}}});
  Message user{.role = "user"};
  for (const std::string& image : o.images)
    user.content.push_back({.kind = Part::Kind::kImage, .image = {.path = image}});
  if (!o.video.empty()) user.content.push_back(video_part(o.video, o.fps.value_or(0), "--video"));
  user.content.push_back({.text = o.prompt});
  request.messages.push_back(std::move(user));
  return request;
}

// A conversation of the file; its own max_new_tokens holds unless the option is given.
Request parse_conversation(const RunOptions& o, std::string_view json) {
  Request request = parse_messages(json, std::filesystem::absolute(o.messages).parent_path());
  if (o.max_new_tokens) request.max_new_tokens = *o.max_new_tokens;
  request.sampling = o.sampling;
  request.stop = o.stop;
  return request;
}

Request request_from(const RunOptions& o, const std::string& json) {
  try {
    return parse_conversation(o, json);
  } catch (const Error& e) {
    throw Error(e.kind(), o.messages + ": " + e.what());
  }
}

Json timings_json(const Answer& a) {
  const Timings& t = a.timings;
  return {{"media_ms", t.media_ms},   {"vision_ms", t.vision_ms},           {"prefill_ms", t.prefill_ms},
          {"decode_ms", t.decode_ms}, {"first_token_ms", t.first_token_ms}, {"total_ms", t.total_ms}};
}

Json answer_json(const Answer& a) {
  Json j = {{"text", a.text},
            {"prompt_tokens", a.prompt_tokens},
            {"image_tokens", a.image_tokens},
            {"cached_tokens", a.cached_tokens},
            {"completion_tokens", a.completion_tokens},
            {"finish_reason", a.finish_reason},
            {"timings", timings_json(a)}};
  if (!a.notes.empty()) j["notes"] = a.notes;
  return j;
}

void print_json(const Json& j) {
  std::cout << j.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
}

void answer_one(Engine& engine, const RunOptions& o, const Request& request) {
  const bool stream = !o.json;
  StageLine stage;
  const Answer a = engine.generate(
      request,
      [&](std::string_view text) {
        stage.clear();
        if (stream) std::cout << text << std::flush;
        return true;
      },
      [&](const char* name, int64_t done, int64_t total) { stage.show(name, done, total); });
  stage.clear();
  if (stream) std::cout << std::endl;
  for (const std::string& note : a.notes) print_note(note);
  if (o.json) print_json(answer_json(a));
  flush_stdout();
  if (o.stats) print_stats(engine, a);
}

// One conversation a line; a bad line gives an error object (or a line on stderr) and the rest goes on.
int answer_lines(Engine& engine, const RunOptions& o, const std::string& text, const SignalGuard& signals) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw Error(ErrorKind::kInput, fmt::format("{} is empty: write one conversation a line", o.messages));
  int code = kDone;
  size_t line_number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      answer_one(engine, o, parse_conversation(o, line));
    } catch (const Error& e) {
      if (signals.exit_code() != 0) return signals.exit_code();
      code = kFailed;
      if (o.json) {
        print_json({{"error", {{"kind", kind_name(e.kind())}, {"message", e.what()}, {"line", line_number}}}});
      } else {
        print_error(fmt::format("{} line {}: {}", o.messages, line_number, e.what()));
      }
    }
  }
  return code;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Contract of --benchmark N: one cold answer, then warm ones; N decode steps, all forced. The read rate is measured between
// them.
void benchmark(Engine& engine, const RunOptions& o, Request request) {
  constexpr int kRuns = 5;
  request.max_new_tokens = o.benchmark;
  request.ignore_eos = true;
  const Answer cold = engine.generate(request);
  std::vector<double> first, prefill, whole, decode, read, share;
  for (int i = 0; i < kRuns; ++i) {
    const DecodeLimit limit = decode_limit(o.engine, cold.prompt_tokens + o.benchmark / 2);
    engine.reset();  // nothing may be remembered
    const Answer a = engine.generate(request);
    first.push_back(a.timings.first_token_ms);
    prefill.push_back(a.timings.vision_ms + a.timings.prefill_ms);
    whole.push_back(a.timings.total_ms);
    decode.push_back(a.timings.decode_ms > 0 ? (a.completion_tokens - 1) * 1000.0 / a.timings.decode_ms : 0);
    read.push_back(limit.read_rate);
    share.push_back(limit.read_rate > 0 ? decode.back() * limit.step_bytes / limit.read_rate : 0);
  }
  Json j = {{"device", engine.info().device},
            {"vision_patches", cold.patches},
            {"prompt_tokens", cold.prompt_tokens},
            {"load_ms", engine.info().load_ms},
            {"cold_first_token_ms", engine.info().load_ms + cold.timings.first_token_ms},
            {"warm_first_token_ms_p50", median(first)},
            {"cold_generate_ms", engine.info().load_ms + cold.timings.total_ms},
            {"warm_generate_ms_p50", median(whole)},
            {"prefill_ms_p50", median(prefill)},
            {"decode_tokens_per_s_best", *std::max_element(decode.begin(), decode.end())},
            {"decode_tokens_per_s_p50", median(decode)}};
  if (median(read) > 0) {
    j["read_gb_per_s_p50"] = median(read) / 1e9;
    j["decode_share_of_read_p50"] = median(share);
  }
  j["decode_steps"] = o.benchmark - 1;
  j["weight_bytes"] = engine.info().weight_bytes;
  if (o.json) return print_json(j);
  for (const auto& [key, value] : j.items())
    std::cout << fmt::format("{:<26} {}\n", key,
                             value.is_number_float() ? fmt::format("{:.2f}", value.get<double>())
                             : value.is_string()     ? value.get<std::string>()
                                                     : value.dump());
}

void check_usage(const RunOptions& o) {
  if (o.max_new_tokens && *o.max_new_tokens < 1)
    wrong_usage(fmt::format("--max-new-tokens {} is too small: use at least 1", *o.max_new_tokens));
  if (o.benchmark < 0 || o.benchmark == 1)
    wrong_usage(fmt::format("--benchmark {} is too small: use at least 2 tokens", o.benchmark));
  if (o.fps && !(*o.fps >= 0.001 && *o.fps <= 1000))
    wrong_usage(fmt::format("--fps {} is not a frame rate: use 0.001 to 1000 frames per second", *o.fps));
  validate(o.engine);
  if (!o.messages.empty()) {
    if (o.has_prompt || !o.images.empty() || !o.video.empty() || !o.system.empty() || o.fps) {
      wrong_usage(
          "--messages already holds the whole conversation: leave out --prompt, --image, --video, --fps and --system");
    }
    if (o.benchmark > 0 && is_lines(o))
      wrong_usage("--benchmark times one conversation: use a .json file, or --prompt");
    return;
  }
  if (o.fps && o.video.empty()) wrong_usage("--fps is of no use without --video");
  const bool blank = o.prompt.find_first_not_of(" \t\r\n\v\f") == std::string::npos;
  if (!o.has_prompt) wrong_usage("nothing is asked: give --prompt TEXT, or --messages FILE");
  if (blank) wrong_usage("--prompt is empty: ask something, e.g. --prompt \"Describe this image.\"");
}

int run(RunOptions& o) {
  check_usage(o);
  SignalGuard signals;
  std::string messages_text;
  if (!o.messages.empty()) messages_text = read_text(o.messages);
  const auto engine = load_with_progress(o.engine);
  signals.watch(engine.get());
  try {
    if (is_lines(o)) return answer_lines(*engine, o, messages_text, signals);
    const Request request = o.messages.empty() ? request_of(o) : request_from(o, messages_text);
    if (o.benchmark > 0) {
      benchmark(*engine, o, request);
    } else {
      answer_one(*engine, o, request);
    }
  } catch (const Error& e) {
    if (signals.exit_code() == 0) throw;
    if (stdout_is_terminal()) std::cout << std::endl;
  }
  return signals.exit_code();
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  auto o = std::make_shared<RunOptions>();
  CLI::App* c = app.add_subcommand("run", "answer a question about pictures, a clip or a text");
  c->add_option("-p,--prompt", o->prompt, "the question")->each([o](const std::string&) { o->has_prompt = true; });
  c->add_option("--image", o->images, "a PNG, JPEG, WebP, GIF or BMP file; any number of times")
      ->type_name("FILE")
      ->allow_extra_args(false);
  c->add_option("--video", o->video, "a folder of frames (with --fps) or an animated GIF")->type_name("DIR|FILE.gif");
  c->add_option("--fps", o->fps, "frames per second of --video");
  c->add_option("--system", o->system, "a system message before the question");
  c->add_option(
       "--messages", o->messages,
       "chat messages as JSON instead of --prompt: a list, or {\"messages\": [...]}; .jsonl: one conversation a line")
      ->type_name("FILE");
  c->add_option("-n,--max-new-tokens,--max-tokens", o->max_new_tokens,
                fmt::format("longest answer, in tokens ({})", Request{}.max_new_tokens));
  c->add_flag("--json", o->json, "one JSON object per answer");
  c->add_flag("--stats", o->stats, "sizes and times on stderr");
  c->add_option("--benchmark", o->benchmark, "time N forced tokens, cold and warm, instead of answering")
      ->type_name("N");
  add_sampling_options(*c, o->sampling, o->stop);
  add_engine_options(*c, o->engine);
  c->callback([o, &action] { action = [o] { return run(*o); }; });
}

}  // namespace vireo::app
