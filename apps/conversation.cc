// SPDX-License-Identifier: Apache-2.0
#include "conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace vireo::app {
namespace {

// By name, but numbers in it by value: frame2 before frame10.
bool natural_less(const std::string& a, const std::string& b) {
  const auto digit = [](const std::string& s, size_t i) { return i < s.size() && s[i] >= '0' && s[i] <= '9'; };
  const auto number = [&](const std::string& s, size_t& i) {
    while (digit(s, i) && s[i] == '0') ++i;
    const size_t begin = i;
    while (digit(s, i)) ++i;
    return s.substr(begin, i - begin);
  };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a, i) && digit(b, j)) {
      const std::string x = number(a, i), y = number(b, j);
      if (x != y) return x.size() != y.size() ? x.size() < y.size() : x < y;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i, ++j;
    }
  }
  return a.size() - i != b.size() - j ? a.size() - i < b.size() - j : a < b;
}

// The picture files of a folder in the order of their names.
std::vector<Picture> frames_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().filename().string()[0] != '.') paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end(),
            [](const auto& a, const auto& b) { return natural_less(a.string(), b.string()); });
  if (paths.empty())
    throw Error(ErrorKind::kInput, fmt::format("{} is an empty folder: put the frames there", folder.string()));
  std::vector<Picture> frames;
  for (const auto& path : paths) frames.push_back({.path = path});
  return frames;
}

void print_plan(const ModelInfo& plan) {
  for (const std::string& note : plan.notes) print_note(note);
  if (!stderr_is_terminal()) return;
  const auto gib = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  std::string text =
      fmt::format("weights {:.2f} GiB, KV cache {:.2f}, scratch {:.2f}, pictures up to {:.2f}", gib(plan.weight_bytes),
                  gib(plan.kv_bytes), gib(plan.scratch_bytes), gib(plan.picture_bytes));
  if (plan.recording_bytes > 0) text += fmt::format(", recorded steps {:.2f}", gib(plan.recording_bytes));
  if (plan.available_bytes)
    text += fmt::format("; {:.2f} GiB available to {}", gib(*plan.available_bytes), plan.device);
  std::fprintf(stderr, "%s\n", dim(text).c_str());
}

}  // namespace

std::unique_ptr<Engine> load_with_progress(const Options& options) {
  ProgressLine progress("loading");
  return Engine::load(
      options, [&](uint64_t done, uint64_t total) { progress.show(done, total); }, print_plan);
}

Part video_part(const std::string& path, double fps, const std::string& option) {
  Part part{.kind = Part::Kind::kVideo};
  part.video.fps = fps;
  if (std::filesystem::is_directory(path)) {
    if (fps <= 0) {
      throw Error(ErrorKind::kUsage, fmt::format("{} {} is a folder: give the frames per second of its pictures{}",
                                                 option, path, option == "--video" ? " with --fps" : " after it"));
    }
    part.video.frames = frames_in(path);
  } else {
    part.video.gif = Picture{.path = path};
    part.video.sample = true;
  }
  return part;
}

std::string read_text(const std::string& path) {
  constexpr size_t kMost = size_t{1} << 30;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path))
    throw Error(ErrorKind::kNotFound, fmt::format("cannot read {}: give the path of a JSON file of messages", path));
  std::string text;
  std::vector<char> piece(1 << 16);
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())), file.gcount() > 0) {
    text.append(piece.data(), static_cast<size_t>(file.gcount()));
    if (text.size() > kMost)
      throw Error(ErrorKind::kCapacity, fmt::format("{} has more than {} bytes: split it", path, kMost));
  }
  return text;
}

std::vector<Request> read_conversations(const std::string& path) {
  std::vector<Request> requests;
  const auto folder = std::filesystem::absolute(path).parent_path();
  const std::string text = read_text(path);
  const auto add = [&](const std::string& json, const std::string& where) {
    try {
      requests.push_back(parse_messages(json, folder));
    } catch (const Error& e) {
      throw Error(e.kind(), where + ": " + e.what());
    }
  };
  if (std::filesystem::path(path).extension() != ".jsonl") {
    add(text, path);
    return requests;
  }
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") != line.npos) add(line, fmt::format("{} line {}", path, number));
  }
  return requests;
}

void add_sampling_options(CLI::App& command, Sampling& s, std::vector<std::string>& stop) {
  const std::string group = "Sampling";
  command.add_option("--temp,--temperature", s.temperature, "0: always the most likely token")
      ->capture_default_str()
      ->group(group);
  command.add_option("--top-k", s.top_k, "only the K most likely tokens; 0: no limit")
      ->capture_default_str()
      ->group(group);
  command.add_option("--top-p", s.top_p, "the fewest most likely tokens that reach this probability")
      ->capture_default_str()
      ->group(group);
  command.add_option("--min-p", s.min_p, "none below this share of the most likely one")
      ->capture_default_str()
      ->group(group);
  command.add_option("--repetition-penalty,--repeat-penalty", s.repetition_penalty, "over prompt and answer; 1: none")
      ->capture_default_str()
      ->group(group);
  command.add_option("--presence-penalty", s.presence_penalty, "over the answer")->capture_default_str()->group(group);
  command.add_option("--frequency-penalty", s.frequency_penalty, "over the answer")
      ->capture_default_str()
      ->group(group);
  command.add_option("--seed", s.seed, "the same seed gives the same answer")->capture_default_str()->group(group);
  command.add_option("--stop", stop, "a text that ends the answer and is not shown; any number of times")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group(group);
}

void StageLine::show(const std::string& stage, int64_t done, int64_t total) {
  if (stage != stage_ || !line_) {
    line_.reset();
    line_ = std::make_unique<ProgressLine>(stage);
    stage_ = stage;
  }
  line_->show(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
}

void print_stats(const Engine& engine, const Answer& a) {
  const Timings& t = a.timings;
  const int steps = a.completion_tokens - 1;
  std::string text =
      fmt::format("{}, {} weights {:.0f} MB, loaded in {:.0f} ms\n", engine.info().model_type, engine.info().device,
                  static_cast<double>(engine.info().weight_bytes) / 1e6, engine.info().load_ms);
  text += fmt::format("prompt   {} tokens, {} of them of pictures ({} patches), {} kept from before\n", a.prompt_tokens,
                      a.image_tokens, a.patches, a.cached_tokens);
  text += fmt::format("pictures {:.1f} ms, vision {:.1f} ms, prefill {:.1f} ms, first token after {:.1f} ms\n",
                      t.media_ms, t.vision_ms, t.prefill_ms, t.first_token_ms);
  text += fmt::format("decode   {} tokens in {:.1f} ms", a.completion_tokens, t.decode_ms);
  if (steps > 0 && t.decode_ms > 0) text += fmt::format(" ({:.1f} tokens/s)", steps * 1000.0 / t.decode_ms);
  std::fprintf(stderr, "%s\n", dim(text + ", finished by " + a.finish_reason).c_str());
}

}  // namespace vireo::app
