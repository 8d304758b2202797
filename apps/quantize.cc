// vireo quantize: a checkpoint with the decoder's projections in a tier.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "stored_tiers.h"
#include "terminal.h"
#include "vireo/tools.h"

namespace vireo::app {
namespace {

using Json = nlohmann::ordered_json;

QuantizeReport write_with_progress(const Quantize& o) {
  ProgressLine line("writing " + o.folder.string());
  return quantize_checkpoint(o, [&](uint64_t done, uint64_t total) { line.show(done, total); });
}

Json report_json(const QuantizeReport& r, double seconds) {
  Json j = {{"folder", r.folder.string()}, {"source_bytes", r.source_bytes}, {"bytes", r.bytes}, {"seconds", seconds}};
  j["tiers"] = tiers_json(r.tiers);
  return j;
}

int quantize(const Quantize& o, bool json) {
  const auto start = std::chrono::steady_clock::now();
  const QuantizeReport r = write_with_progress(o);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (json) {
    std::cout << report_json(r, took.count()).dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  } else {
    const auto gb = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
    std::cout << fmt::format("wrote {}: {:.2f} GB of {:.2f} GB in {:.1f} s\n", r.folder.string(), gb(r.bytes),
                             gb(r.source_bytes), took.count());
    print_tiers(r.tiers);
  }
  flush_stdout();
  return kDone;
}

}  // namespace

void add_quantize(CLI::App& app, Action& action) {
  auto o = std::make_shared<Quantize>();
  auto json = std::make_shared<bool>(false);
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
  c->add_option("-t,--threads", o->threads, "0: every processor this process may use")->capture_default_str();
  c->add_flag("--json", *json, "for machines");
  c->callback([o, json, &action] { action = [o, json] { return quantize(*o, *json); }; });
}

}  // namespace vireo::app
