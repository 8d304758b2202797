// How much a weight tier changes what a model says: the logits of decode steps, forced along the BF16 answer, against those of BF16.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/cosine.h"
#include "engine/options.h"
#include "files/hub.h"
#include "ops/tier.h"
#include "vireo/error.h"
#include "vireo/tools.h"

namespace vireo {
namespace {

int32_t largest(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// log of the sum of exponentials, by which logits become log probabilities.
double log_sum(const std::vector<float>& logits) {
  const double most = logits[static_cast<size_t>(largest(logits))];
  double sum = 0;
  for (float v : logits) sum += std::exp(v - most);
  return most + std::log(sum);
}

// Kullback-Leibler divergence of b's probabilities from a's, in nats.
double divergence(const std::vector<float>& a, const std::vector<float>& b) {
  const double log_a = log_sum(a), log_b = log_sum(b);
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::exp(a[i] - log_a) * ((a[i] - log_a) - (b[i] - log_b));
  return std::max(0.0, sum);
}

void add(FidelityScore& s, const std::vector<float>& a, const std::vector<float>& b) {
  const double c = cosine(a, b), kl = divergence(a, b);
  s.cosine_mean += c;
  s.cosine_least = std::min(s.cosine_least, c);
  s.kl_mean += kl;
  s.kl_most = std::max(s.kl_most, kl);
  s.agreement += largest(a) == largest(b) ? 1 : 0;
  ++s.steps;
}

// The BF16 model's own answers: what both models are forced along.
std::vector<Answer> answers_of(Engine& base, const std::vector<Request>& requests, const OnStage& on_stage) {
  std::vector<Answer> answers;
  for (const Request& r : requests) {
    if (on_stage) on_stage("bf16 answers", static_cast<int64_t>(answers.size()), static_cast<int64_t>(requests.size()));
    base.reset();
    answers.push_back(base.generate(r));
  }
  return answers;
}

FidelityScore score(Engine& base, Engine& tier, const std::vector<Request>& requests,
                    const std::vector<Answer>& answers, bool texts, const OnStage& on_stage, const std::string& stage) {
  FidelityScore s;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (on_stage) on_stage(stage.c_str(), static_cast<int64_t>(i), static_cast<int64_t>(requests.size()));
    base.reset();
    tier.reset();
    for (Engine* engine : {&base, &tier}) {
      engine->set_prompt(requests[i]);
      engine->prefill();
    }
    // What follows the closing token is nobody's business.
    const std::vector<int32_t>& tokens = answers[i].tokens;
    for (size_t t = 0; t + 1 < tokens.size(); ++t) add(s, base.decode_step(tokens[t]), tier.decode_step(tokens[t]));
    if (!texts) continue;
    tier.reset();
    if (tier.generate(requests[i]).text == answers[i].text) ++s.same_texts;
  }
  if (s.steps == 0) throw Error(ErrorKind::kInput, "no answer has two tokens: ask for longer ones, or raise --steps");
  s.cosine_mean /= s.steps;
  s.kl_mean /= s.steps;
  s.agreement /= s.steps;
  return s;
}

// Whether --weight-mode is a tier.
bool names_tier(const Options& o) {
  return o.weight_mode != "bf16" && o.weight_mode != "auto";
}

// Whether anything is in a tier, because it is asked for or the checkpoint has it so.
bool has_tier(const Options& o) {
  if (names_tier(o) || !o.wq_overrides.empty()) return true;
  return o.weight_mode == "auto" &&
         load_model_config(resolve_checkpoint(o.checkpoint, {o.hub_cache})).quantization.has_value();
}

// What to read a projection in instead: eight bits of the same kind, or BF16.
std::string better_tier(const std::string& tier) {
  if (tier == "w4") return "w8";
  if (tier == "int4") return "int8";
  return "bf16";
}

}  // namespace

FidelityReport fidelity(const FidelityOptions& o, const OnStage& on_stage) {
  validate(o.engine);
  if (o.requests.empty())
    throw Error(ErrorKind::kUsage, "there is no conversation to compare on: give --messages FILE or --prompt TEXT");
  if (o.steps < 1) throw Error(ErrorKind::kUsage, fmt::format("--steps {} cannot be: use 1 or more", o.steps));
  if (!has_tier(o.engine) && o.engine.kv_mode == "bf16") {
    throw Error(ErrorKind::kUsage,
                "bf16 is compared with itself: give --weight-mode or --wq a tier, or --kv-mode int8");
  }
  if (o.sweep && !names_tier(o.engine)) {
    throw Error(ErrorKind::kUsage, "--sweep has no tier for each projection: give --weight-mode one, such as w8");
  }
  std::vector<Request> requests = o.requests;
  for (Request& r : requests) {
    r.max_new_tokens = o.steps + 1;
    r.sampling = {};
  }
  Options plain = o.engine;
  plain.weight_mode = "bf16";
  plain.wq_overrides.clear();
  plain.kv_mode = "bf16";
  const auto tier = Engine::load(o.engine);  // first: a device may not have it
  const auto base = Engine::load(plain);
  const auto answers = answers_of(*base, requests, on_stage);
  FidelityReport report{.device = tier->info().device, .conversations = static_cast<int>(requests.size())};
  report.score = score(*base, *tier, requests, answers, true, on_stage, "the tier");
  if (!o.sweep) return report;
  for (const std::string& projection : tier_projections()) {
    std::map<std::string, std::string> overrides;
    for (const std::string& other : tier_projections()) overrides[other] = "bf16";
    overrides[projection] = o.engine.weight_mode;
    tier->set_wq_overrides(overrides);
    report.sweep.push_back({projection, score(*base, *tier, requests, answers, false, on_stage, projection)});
  }
  std::sort(report.sweep.begin(), report.sweep.end(), [](const FidelityOfProjection& a, const FidelityOfProjection& b) {
    return a.score.cosine_mean < b.score.cosine_mean;
  });
  report.suggestion = report.sweep[0].projection + "=" + better_tier(o.engine.weight_mode);
  return report;
}

}  // namespace vireo
