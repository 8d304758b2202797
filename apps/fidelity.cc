// vireo fidelity: what a weight tier, or keys and values in 8 bits, cost in accuracy.
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

struct Choices {
  FidelityOptions fidelity;
  std::string messages;
  std::vector<std::string> prompts;
  bool json = false;
};

Json score_json(const FidelityScore& s) {
  return {{"steps", s.steps},         {"cosine_mean", s.cosine_mean}, {"cosine_least", s.cosine_least},
          {"agreement", s.agreement}, {"kl_mean", s.kl_mean},         {"kl_most", s.kl_most}};
}

Json report_json(const FidelityReport& r) {
  Json j = {{"device", r.device}, {"conversations", r.conversations}, {"same_texts", r.score.same_texts}};
  j.update(score_json(r.score));
  for (const FidelityOfProjection& p : r.sweep) j["sweep"][p.projection] = score_json(p.score);
  if (!r.suggestion.empty()) j["suggestion"] = r.suggestion;
  return j;
}

void print_row(const std::string& name, const FidelityScore& s) {
  std::cout << fmt::format("{:<12} {:>11.6f} {:>11.6f} {:>10.1f} % {:>9.5f} {:>9.5f}\n", name, s.cosine_mean,
                           s.cosine_least, 100 * s.agreement, s.kl_mean, s.kl_most);
}

int run_fidelity(const Choices& c) {
  FidelityOptions o = c.fidelity;
  if (!c.messages.empty()) o.requests = read_conversations(c.messages);
  for (const std::string& prompt : c.prompts) {
    o.requests.emplace_back().messages.push_back({.role = "user", .content = {{.text = prompt}}});
  }
  StageLine stage;
  const FidelityReport r =
      fidelity(o, [&](const std::string& name, int64_t done, int64_t total) { stage.show(name, done, total); });
  stage.clear();
  if (c.json) {
    std::cout << report_json(r).dump(2) << '\n';
    return kDone;
  }
  std::cout << fmt::format("on {}: {} decode steps of {} conversations, {} with the same answer as bf16\n", r.device,
                           r.score.steps, r.conversations, r.score.same_texts);
  std::cout << fmt::format("{:<12} {:>11} {:>11} {:>12} {:>9} {:>9}\n", "", "cosine", "least", "same token", "KL",
                           "most");
  const bool names_tier = o.engine.weight_mode != "bf16" && o.engine.weight_mode != "auto";
  print_row(names_tier ? o.engine.weight_mode : "as given", r.score);
  for (const FidelityOfProjection& p : r.sweep) print_row(p.projection, p.score);
  if (!r.suggestion.empty()) std::cout << "most is lost in the first projection: try --wq " << r.suggestion << '\n';
  return kDone;
}

}  // namespace

void add_fidelity(CLI::App& app, Action& action) {
  auto c = std::make_shared<Choices>();
  CLI::App* s =
      app.add_subcommand("fidelity", "compare a weight tier, or an int8 cache, with bf16, decode step by decode step");
  s->add_option("--messages", c->messages, "conversations as run takes them; .jsonl: one a line")->type_name("FILE");
  s->add_option("-p,--prompt", c->prompts, "a question; any number of times")->allow_extra_args(false);
  s->add_option("--steps", c->fidelity.steps, "of an answer at most")->capture_default_str();
  s->add_flag("--sweep", c->fidelity.sweep, "also with each projection alone in the tier");
  s->add_flag("--json", c->json, "for machines");
  add_engine_options(*s, c->fidelity.engine);
  s->callback([c, &action] { action = [c] { return run_fidelity(*c); }; });
}

}  // namespace vireo::app
