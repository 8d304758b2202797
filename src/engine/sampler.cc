// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <algorithm>
#include <cmath>

#include "ops/choice.h"

namespace vireo {
namespace {

struct Candidate {
  int32_t id;
  double weight;
};

// The k largest logits (all when k is 0 or more than there are), largest first, lower ids first among equals.
std::vector<int32_t> largest_ids(std::span<const float> logits, int64_t k) {
  std::vector<int32_t> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const auto before = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  const size_t n = k > 0 ? std::min(ids.size(), static_cast<size_t>(k)) : ids.size();
  std::partial_sort(ids.begin(), ids.begin() + static_cast<int64_t>(n), ids.end(), before);
  ids.resize(n);
  return ids;
}

}  // namespace

Sampler::Sampler(const Sampling& s, int32_t vocabulary, std::span<const int32_t> prompt)
    : sampling_(s), vocabulary_(vocabulary) {
  if (s.repetition_penalty == 1) return;
  for (int32_t id : prompt) ++prompt_counts_[id];
}

void Sampler::penalise(std::span<float> logits) const {
  const auto repeat = [&](int32_t id) {
    float& v = logits[static_cast<size_t>(id)];
    const float penalty = static_cast<float>(sampling_.repetition_penalty);
    v = v > 0 ? v / penalty : v * penalty;
  };
  if (sampling_.repetition_penalty != 1) {
    for (const auto& [id, count] : prompt_counts_) repeat(id);
    for (const auto& [id, count] : counts_) {
      if (!prompt_counts_.count(id)) repeat(id);
    }
  }
  for (const auto& [id, count] : counts_) {
    logits[static_cast<size_t>(id)] -=
        static_cast<float>(sampling_.presence_penalty + sampling_.frequency_penalty * count);
  }
}

int32_t Sampler::draw(std::span<const float> logits) const {
  const auto ids = largest_ids(logits, sampling_.top_k);
  std::vector<Candidate> kept;
  const double most = logits[static_cast<size_t>(ids[0])];
  double total = 0;
  for (int32_t id : ids) {
    kept.push_back({id, std::exp((logits[static_cast<size_t>(id)] - most) / sampling_.temperature)});
    total += kept.back().weight;
  }
  // top-p: the fewest of the most likely whose probabilities reach p; min-p: none below that share of the most likely.
  double sum = 0;
  size_t n = 0;
  while (n < kept.size() && (n == 0 || sum < sampling_.top_p * total) &&
         (n == 0 || kept[n].weight >= sampling_.min_p * kept[0].weight)) {
    sum += kept[n++].weight;
  }
  double left = static_cast<double>(chance(sampling_.seed, index_)) * 0x1.0p-53 * sum;
  for (size_t i = 0; i < n; ++i) {
    left -= kept[i].weight;
    if (left < 0) return kept[i].id;
  }
  return kept[n - 1].id;
}

int32_t Sampler::choose(std::span<float> logits) {
  logits = logits.first(std::min(logits.size(), static_cast<size_t>(vocabulary_)));
  penalise(logits);
  const int32_t id = sampling_.temperature <= 0
                         ? static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin())
                         : draw(logits);
  ++counts_[id];
  ++index_;
  return id;
}

}  // namespace vireo
