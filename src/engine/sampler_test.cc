// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "ops/choice.h"

namespace vireo {
namespace {

// How often each token is drawn from the same logits under seeds 0 .. n.
std::map<int32_t, int> draws(Sampling s, const std::vector<float>& logits, int n = 4000) {
  std::map<int32_t, int> counts;
  for (int i = 0; i < n; ++i) {
    s.seed = static_cast<uint64_t>(i);
    std::vector<float> row = logits;
    ++counts[Sampler(s, static_cast<int32_t>(row.size()), {}).choose(row)];
  }
  return counts;
}

TEST(Sampler, TemperatureZeroIsGreedyWithTheLowestIdOnTies) {
  Sampler s({}, 4, {});
  std::vector<float> logits = {1, 3, 3, 2};
  EXPECT_EQ(s.choose(logits), 1);
}

TEST(Sampler, FrequenciesFollowTheSoftmaxAtTheTemperature) {
  const auto counts = draws({.temperature = 2}, {0, 2 * std::log(3.0f), 2 * std::log(6.0f)}, 20000);
  EXPECT_NEAR(counts.at(0), 2000, 200);
  EXPECT_NEAR(counts.at(1), 6000, 300);
  EXPECT_NEAR(counts.at(2), 12000, 300);
}

TEST(Sampler, TopKKeepsTheMostLikely) {
  const auto counts = draws({.temperature = 1, .top_k = 2}, {1, 1.1f, 1.2f, 0.9f});
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_TRUE(counts.count(1) && counts.count(2));
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  // Probabilities 0.5, 0.3, 0.2.
  const std::vector<float> logits = {std::log(5.0f), std::log(3.0f), std::log(2.0f)};
  EXPECT_EQ(draws({.temperature = 1, .top_p = 0.49}, logits).size(), 1u);
  EXPECT_EQ(draws({.temperature = 1, .top_p = 0.6}, logits).size(), 2u);
  EXPECT_EQ(draws({.temperature = 1, .top_p = 0.9}, logits).size(), 3u);
}

TEST(Sampler, MinPIsAShareOfTheMostLikely) {
  const std::vector<float> logits = {std::log(5.0f), std::log(3.0f), std::log(2.0f)};
  EXPECT_EQ(draws({.temperature = 1, .min_p = 0.5}, logits).size(), 2u);
  EXPECT_EQ(draws({.temperature = 1, .min_p = 0.39}, logits).size(), 3u);
}

TEST(Sampler, RepetitionPenaltyCountsThePromptAndDividesOrMultiplies) {
  const std::vector<int32_t> prompt = {0, 2};
  Sampler s({.repetition_penalty = 2}, 3, prompt);
  std::vector<float> logits = {3, 1.6f, -1};
  EXPECT_EQ(s.choose(logits), 1);
  EXPECT_FLOAT_EQ(logits[0], 1.5f);
  EXPECT_FLOAT_EQ(logits[2], -2);
}

TEST(Sampler, PresenceAndFrequencyCountTheAnswerAlone) {
  Sampler s({.presence_penalty = 1, .frequency_penalty = 0.5}, 2, std::vector<int32_t>{1, 1, 1});
  std::vector<int32_t> chosen;
  for (int i = 0; i < 4; ++i) {
    std::vector<float> logits = {0, 2};
    chosen.push_back(s.choose(logits));
  }
  // Token 1 loses 1.5, then 2.
  EXPECT_EQ(chosen, (std::vector<int32_t>{1, 1, 0, 1}));
}

TEST(Sampler, PaddingRowsAreNeverChosen) {
  std::vector<float> logits = {0, 1, 100};
  EXPECT_EQ(Sampler({.temperature = 0.01}, 2, {}).choose(logits), 1);
}

TEST(Chance, IsInRangeAndDependsOnBothNumbers) {
  double sum = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    ASSERT_LT(chance(7, i), uint64_t{1} << 53);
    sum += static_cast<double>(chance(7, i)) * 0x1.0p-53;
  }
  EXPECT_NEAR(sum / 1000, 0.5, 0.05);
  EXPECT_NE(chance(1, 0), chance(0, 1));
  EXPECT_EQ(chance(3, 4), chance(3, 4));
}

}  // namespace
}  // namespace vireo
