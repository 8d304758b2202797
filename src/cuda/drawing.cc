// SPDX-License-Identifier: Apache-2.0
#include "cuda/drawing.h"

#include <algorithm>

#include "base/check.h"

namespace vireo::cuda {
namespace {

DrawRule rule_of(const Choice& choice, int64_t vocab) {
  const Sampling& s = choice.sampling;
  DrawRule rule;
  rule.presence_penalty = s.presence_penalty;
  rule.frequency_penalty = s.frequency_penalty;
  rule.top_p = s.top_p;
  rule.min_p = s.min_p;
  rule.seed = s.seed;
  rule.temperature = static_cast<float>(s.temperature);
  rule.repetition_penalty = static_cast<float>(s.repetition_penalty);
  rule.top_k = s.top_k;
  // The largest logit of all is what a plain step chooses, padding or not.
  rule.vocabulary = static_cast<int32_t>(is_greedy(s) ? vocab : std::min<int64_t>(vocab, choice.vocabulary));
  rule.penalises = has_penalties(s);
  return rule;
}

}  // namespace

Drawing::Drawing(CudaBackendBase& backend, int64_t sequences, int64_t vocab)
    : backend_(backend),
      draws_(static_cast<size_t>(sequences), false),
      rules_(backend.allocate(sequences, sizeof(DrawRule), DType::kU8)),
      counts_(backend.allocate(sequences, vocab, DType::kI32)),
      adjusted_(backend.allocate(std::min<int64_t>(sequences, kGemvRows), (vocab + 3) / 4 * 4, DType::kF32)),
      bins_(backend.allocate(std::min<int64_t>(sequences, kGemvRows), kDrawBins * 12, DType::kU8)) {
  scratch_.rules = static_cast<DrawRule*>(rules_.view.data);
  scratch_.counts = static_cast<uint32_t*>(counts_.view.data);
  scratch_.adjusted = adjusted_.view.row<float>(0);
  scratch_.bin_weights = static_cast<uint64_t*>(bins_.view.data);
  scratch_.bin_counts = reinterpret_cast<uint32_t*>(scratch_.bin_weights + bins_.view.rows * kDrawBins);
  scratch_.vocab = vocab;
  scratch_.pitch = adjusted_.view.stride;
  backend.upload(std::vector<uint8_t>(static_cast<size_t>(bins_.view.size()), 0).data(), bins_.view);
  for (int32_t s = 0; s < sequences; ++s) begin(s, {});
}

void Drawing::begin(int32_t sequence, const Choice& choice) {
  const DrawRule rule = rule_of(choice, scratch_.vocab);
  CHECK(rule.vocabulary > 0);
  std::vector<uint32_t> counts(static_cast<size_t>(scratch_.vocab), 0);
  for (const int32_t id : choice.prompt) {
    if (choice.sampling.repetition_penalty != 1 && id >= 0 && id < scratch_.vocab)
      counts[static_cast<size_t>(id)] = kInPrompt;
  }
  backend_.upload(&rule, rules_.view.slice_rows(sequence, 1));
  backend_.upload(counts.data(), counts_.view.slice_rows(sequence, 1));
  draws_[static_cast<size_t>(sequence)] = !is_greedy(choice.sampling);
}

}  // namespace vireo::cuda
