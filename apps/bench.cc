// vireo bench: the parts of one checkpoint timed on this machine, each beside what the machine can do at most.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "conversation.h"
#include "terminal.h"
#include "vireo/tools.h"

namespace vireo::app {
namespace {

using Json = nlohmann::ordered_json;

Json report_json(const BenchReport& r) {
  Json j = {{"device", r.device}, {"model", r.model}, {"patches", r.patches}, {"prompt_tokens", r.prompt_tokens}};
  for (const BenchFigure& f : r.figures) {
    Json& out = j["figures"][f.name];
    out = {{"unit", f.unit}, {"median", f.median}, {"least", f.least}, {"most", f.most}};
    if (!f.of.empty()) out["share_of_" + f.of] = f.share;
  }
  return j;
}

int run_bench(const BenchOptions& o, bool json) {
  StageLine stage;
  const BenchReport r = bench(o, [&](const char* name, int64_t done, int64_t total) { stage.show(name, done, total); });
  stage.clear();
  for (const std::string& note : r.notes) print_note(note);
  if (json) {
    std::cout << report_json(r).dump(2) << '\n';
    return kDone;
  }
  std::cout << fmt::format("{} on {}: {} patches, {} prompt tokens, {} rounds\n", r.model, r.device, r.patches,
                           r.prompt_tokens, o.rounds);
  std::cout << fmt::format("{:<26} {:>10} {:>10} {:>10}  {}\n", "", "median", "least", "most", "unit");
  for (const BenchFigure& f : r.figures) {
    std::cout << fmt::format("{:<26} {:>10.2f} {:>10.2f} {:>10.2f}  {}", f.name, f.median, f.least, f.most, f.unit);
    if (!f.of.empty()) std::cout << fmt::format("  ({:.0f} % of {})", 100 * f.share, f.of);
    std::cout << '\n';
  }
  return kDone;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto o = std::make_shared<BenchOptions>();
  auto json = std::make_shared<bool>(false);
  CLI::App* c = app.add_subcommand("bench", "time a checkpoint's parts, beside what this machine can do");
  c->add_option("--width", o->width, "of the picture, in pixels")->capture_default_str();
  c->add_option("--height", o->height, "of the picture")->capture_default_str();
  c->add_option("--image", o->image, "this file instead, from its bytes");
  c->add_flag("--first-use", o->first_use, "also how much longer a new length of prompt or size of picture takes once");
  c->add_flag("--caps", o->caps, "also the picture at 1,000,000, 500,000 and 250,000 pixels at most");
  c->add_flag("--profile", o->profile, "also where the time goes, part by part, op after op");
  c->add_option("-n,--decode-steps", o->decode_steps, "forced tokens of each round")->capture_default_str();
  c->add_option("--rounds", o->rounds, "after one that does not count")->capture_default_str();
  c->add_flag("--json", *json, "for machines");
  add_engine_options(*c, o->engine);
  c->callback([o, json, &action] { action = [o, json] { return run_bench(*o, *json); }; });
}

}  // namespace vireo::app
