// vireo random-checkpoint: a checkpoint of a published shape with random weights.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <iostream>

#include "commands.h"
#include "terminal.h"
#include "vireo/tools.h"

namespace vireo::app {
namespace {

// An unsigned option would take -1 for its largest value.
std::string not_negative(const std::string& number) {
  return number.rfind('-', 0) == 0 ? number + " is negative; use 0 or more" : "";
}

// The bytes of its tensors.
uint64_t write_with_progress(const RandomCheckpoint& o) {
  uint64_t bytes = 0;
  ProgressLine line("writing " + o.folder.string());
  write_random_checkpoint(o, [&](uint64_t done, uint64_t total) {
    bytes = total;
    line.show(done, total);
  });
  return bytes;
}

int write(RandomCheckpoint o) {
  if (o.folder.empty()) o.folder = fmt::format("random-{}-{}", o.size, o.seed);
  const auto start = std::chrono::steady_clock::now();
  const uint64_t bytes = write_with_progress(o);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::cout << fmt::format("wrote {}: {:.2f} GB of random weights (seed {}) in {:.1f} s\n", o.folder.string(),
                           static_cast<double>(bytes) / 1e9, o.seed, took.count());
  return kDone;
}

}  // namespace

void add_random_checkpoint(CLI::App& app, Action& action) {
  auto o = std::make_shared<RandomCheckpoint>();
  CLI::App* c = app.add_subcommand("random-checkpoint", "write a checkpoint of a published shape with random weights");
  c->add_option("--size", o->size, "2b, 4b, 8b, 32b, 30b-a3b or 235b-a22b")->required();
  c->add_option("--seed", o->seed, "same seed, same bytes")->check(not_negative, "")->capture_default_str();
  c->add_option("--layers", o->layers, "layers of the language model; 0: all")->capture_default_str();
  c->add_option("--vision-depth", o->vision_depth, "blocks of the vision tower; 0: all")->capture_default_str();
  c->add_option("-o,--out", o->folder, "folder to write (default: random-SIZE-SEED)")->type_name("DIR");
  c->add_option("--max-shard-size", o->max_shard_bytes, "bytes of one weight file, e.g. 5GB or 500MiB")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(true).description(""))
      ->default_str("5GB");
  c->add_option("-t,--threads", o->threads, "0: every processor this process may use")->capture_default_str();
  c->callback([o, &action] { action = [o] { return write(*o); }; });
}

}  // namespace vireo::app
