// What run and chat share: loading with a progress line, clips from folders, sampling options, progress of slow parts, statistics.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "terminal.h"
#include "vireo/vireo.h"

namespace vireo::app {

std::unique_ptr<Engine> load_with_progress(const Options& options);

// A folder of frames, in the order of the numbers in their names, or an animated GIF. fps 0: not given, which a folder does not allow;
// `option` is what the user wrote, for the error.
Part video_part(const std::string& path, double fps, const std::string& option);

// The whole of a --messages file, which may be a pipe.
std::string read_text(const std::string& path);
// Those of a file: of .jsonl one a line, else its only one. Throws Error naming the line.
std::vector<Request> read_conversations(const std::string& path);

// --temp, --top-k, ... and --stop.
void add_sampling_options(CLI::App& command, Sampling& sampling, std::vector<std::string>& stop);

// The slow parts of one answer as a progress line, from the first second on.
class StageLine {
 public:
  void show(const std::string& stage, int64_t done, int64_t total);
  void clear() { line_.reset(); }

 private:
  std::string stage_;
  std::unique_ptr<ProgressLine> line_;
};

void print_stats(const Engine& engine, const Answer& answer);

}  // namespace vireo::app
