// vireo quantize: a checkpoint with the decoder's projections in a tier.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "conversation.h"
#include "stored_tiers.h"
#include "terminal.h"
#include "vireo/tools.h"

namespace vireo::app {
namespace {

using Json = nlohmann::ordered_json;

struct Choices {
  Quantize quantize;
  std::string calibrate;
  bool json = false;
};

QuantizeReport write_with_progress(const Quantize& o) {
  StageLine stage;
  ProgressLine line("writing " + o.folder.string());
  return quantize_checkpoint(
      o,
      [&](uint64_t done, uint64_t total) {
        stage.clear();
        line.show(done, total);
      },
      [&](const std::string& name, int64_t done, int64_t total) { stage.show(name, done, total); });
}

Json calibrated_json(const Calibration& calibration, const std::vector<CalibratedProjection>& projections) {
  Json j = {{"calibration", calibration.name}, {"conversations", calibration.requests.size()}};
  for (const CalibratedProjection& p : projections) {
    j["projections"].push_back(
        {{"projection", p.projection}, {"alpha", p.alpha}, {"plain_error", p.plain_error}, {"error", p.error}});
  }
  return j;
}

Json report_json(const Quantize& o, const QuantizeReport& r, double seconds) {
  Json j = {{"folder", r.folder.string()}, {"source_bytes", r.source_bytes}, {"bytes", r.bytes}, {"seconds", seconds}};
  j["tiers"] = tiers_json(r.tiers);
  if (o.calibration) j["calibrated"] = calibrated_json(*o.calibration, r.calibrated);
  return j;
}

void print_calibrated(const Quantize& o, const std::vector<CalibratedProjection>& projections) {
  double error = 0, plain = 0;
  for (const CalibratedProjection& p : projections) {
    error += p.error;
    plain += p.plain_error;
  }
  const size_t conversations = o.calibration->requests.size();
  std::cout << fmt::format(
      "          calibrated by {} conversation{}: errors of {} products {:.0f} % smaller on average\n", conversations,
      conversations == 1 ? "" : "s", projections.size(), plain > 0 ? 100 * (1 - error / plain) : 0.0);
}

int quantize(const Choices& c) {
  Quantize o = c.quantize;
  if (!c.calibrate.empty()) o.calibration = Calibration{c.calibrate, read_conversations(c.calibrate)};
  const auto start = std::chrono::steady_clock::now();
  const QuantizeReport r = write_with_progress(o);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (c.json) {
    std::cout << report_json(o, r, took.count()).dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  } else {
    const auto gb = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
    std::cout << fmt::format("wrote {}: {:.2f} GB of {:.2f} GB in {:.1f} s\n", r.folder.string(), gb(r.bytes),
                             gb(r.source_bytes), took.count());
    print_tiers(r.tiers);
    if (o.calibration) print_calibrated(o, r.calibrated);
  }
  flush_stdout();
  return kDone;
}

}  // namespace

void add_quantize(CLI::App& app, Action& action) {
  auto choices = std::make_shared<Choices>();
  Quantize* o = &choices->quantize;
  o->hub_cache = hub_cache();
  CLI::App* c = app.add_subcommand(
      "quantize",
      "write a checkpoint in a weight tier; without --keep-bf16 prefill, too, reads what the tier's codes stand for");
  c->add_option("-m,--checkpoint,--model", o->checkpoint,
                "in bf16: folder, or ORG/NAME in the local Hugging Face cache")
      ->type_name("DIR|ORG/NAME")
      ->required();
  c->add_option("--weight-mode", o->weight_mode, "tier of all projections: bf16, w8, w4, int8, int4 or nvfp4")
      ->capture_default_str();
  add_wq_option(*c, o->wq_overrides);
  c->add_option("-o,--out", o->folder, "folder to write; empty, or not there yet")->type_name("DIR")->required();
  c->add_flag("--keep-bf16", o->keep_bf16,
              "keep the bf16 weights beside the codes: prefill is that of the source, and any tier can be loaded");
  c->add_option(
       "--calibrate", choices->calibrate,
       "conversations, as fidelity takes them: weights are rounded so that products with their inputs lose least")
      ->type_name("FILE");
  c->add_option("-t,--threads", o->threads, "0: every processor this process may use")->capture_default_str();
  c->add_flag("--json", choices->json, "for machines");
  c->callback([choices, &action] { action = [choices] { return quantize(*choices); }; });
}

}  // namespace vireo::app
