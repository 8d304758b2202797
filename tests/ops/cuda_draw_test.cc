// Ids drawn on the device against the definition in double: the id must be the one on whose share of the kept weights the chance
// falls, at all vocabulary sizes and rules, drawn by steps that are recorded and replayed. Skipped where there is no device.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "cuda/cuda_backend.h"
#include "cuda_test.h"
#include "ops/choice.h"

namespace vireo::testing_ops {
namespace {

// A step whose logits are whatever was last given.
class Drawer {
 public:
  Drawer(int64_t sequences, int64_t vocab)
      : backend_(testing_cuda::make_backend()),
        sequences_(sequences),
        logits_(backend_->allocate(sequences, vocab, DType::kF32)),
        runner_(make_graph_runner(*backend_,
                                  [this](const Step& step) { return logits_.view.slice_rows(0, step.wanted.rows); },
                                  {.max_rows = 8, .sequences = sequences, .pages = 16, .vocab = vocab})) {}

  Runner& runner() { return *runner_; }
  void give(const std::vector<float>& logits) { backend_->upload(logits.data(), logits_.view); }
  HostStep rows() const {
    HostStep step;
    for (int32_t s = 0; s < sequences_; ++s) {
      step.ids.push_back(1);
      step.positions.push_back({0, 0, 0});
      step.sequences.push_back(s);
      step.cache_indices.push_back(0);
      step.wanted.push_back(s);
    }
    return step;
  }
  std::vector<int32_t> ids() {
    const auto ids = runner_->sampled();
    return {ids.begin(), ids.end()};
  }

 private:
  std::unique_ptr<Backend> backend_;
  int64_t sequences_;
  OwnedTensor logits_;
  std::unique_ptr<Runner> runner_;
};

// One sequence as it should be: what its penalties do, and which id a chance falls on.
class Expected {
 public:
  explicit Expected(const Choice& choice) : choice_(choice) {
    for (const int32_t id : choice.prompt) in_prompt_[id] = true;
  }

  // Whether `id` is right, but for weights that are off by 1e-5 of all.
  testing::AssertionResult is_right(std::vector<float> logits, int32_t id) {
    logits.resize(static_cast<size_t>(choice_.vocabulary));
    penalise(logits);
    const Sampling& s = choice_.sampling;
    const uint64_t index = index_++;
    ++chosen_[id];
    if (id < 0 || id >= choice_.vocabulary) return testing::AssertionFailure() << "id " << id;
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return at(logits, a) > at(logits, b); });
    if (s.temperature <= 0) return result(id == order[0], id, order[0]);
    if (s.top_k > 0 && s.top_k < static_cast<int>(order.size())) order.resize(static_cast<size_t>(s.top_k));
    std::vector<double> up_to;
    double sum = 0;
    for (const int32_t i : order)
      up_to.push_back(sum += std::exp((double{at(logits, i)} - at(logits, order[0])) / s.temperature));
    // Where a sum comes close to top-p, or a weight to min-p, one more or less may be kept.
    const auto kept_with = [&](double off) {
      size_t kept = 1;
      while (kept < order.size() && up_to[kept - 1] < s.top_p * sum * (1 + off) &&
             up_to[kept] - up_to[kept - 1] >= s.min_p * (1 - off)) {
        ++kept;
      }
      return kept;
    };
    constexpr double kOff = 1e-5;
    const size_t fewest = kept_with(-kOff), most = kept_with(kOff);
    const double share = static_cast<double>(chance(s.seed, index)) * 0x1.0p-53, off = kOff * sum;
    const size_t place = static_cast<size_t>(std::ranges::find(order, id) - order.begin());
    if (place >= most) return testing::AssertionFailure() << "id " << id << " is not among the " << most << " kept";
    const double begin = place == 0 ? 0 : up_to[place - 1];
    if (begin - off <= share * up_to[most - 1] && share * up_to[fewest - 1] <= up_to[place] + off) {
      return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << "id " << id << " has " << begin << " to " << up_to[place] << ", not "
                                       << share * up_to[most - 1];
  }

 private:
  static float at(const std::vector<float>& v, int32_t i) { return v[static_cast<size_t>(i)]; }
  static testing::AssertionResult result(bool right, int32_t id, int32_t want) {
    return right ? testing::AssertionSuccess() : testing::AssertionFailure() << id << " instead of " << want;
  }
  void penalise(std::vector<float>& logits) const {
    const Sampling& s = choice_.sampling;
    for (size_t i = 0; i < logits.size(); ++i) {
      const auto found = chosen_.find(static_cast<int32_t>(i));
      const int count = found == chosen_.end() ? 0 : found->second;
      const float penalty = static_cast<float>(s.repetition_penalty);
      if (penalty != 1 && (count > 0 || in_prompt_.count(static_cast<int32_t>(i)))) {
        logits[i] = logits[i] > 0 ? logits[i] / penalty : logits[i] * penalty;
      }
      if (count > 0) logits[i] -= static_cast<float>(s.presence_penalty + s.frequency_penalty * count);
    }
  }

  Choice choice_;
  std::map<int32_t, bool> in_prompt_;
  std::map<int32_t, int> chosen_;
  uint64_t index_ = 0;
};

enum class Kind { kNormal, kPeaked, kEqual, kFewValues };

std::vector<float> fresh_logits(Kind kind, int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal(0, kind == Kind::kPeaked ? 1.0f : 3.0f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) {
    v = kind == Kind::kEqual ? -1.5f : normal(random);
    if (kind == Kind::kFewValues) v = std::round(v / 4);
  }
  if (kind == Kind::kPeaked) {
    for (int i = 0; i < 50; ++i) values[random() % values.size()] += 12 + normal(random) * 4;
  }
  return values;
}

class CudaDraw : public testing_cuda::OnDevice<> {};

TEST_F(CudaDraw, FallsOnTheShareOfItsWeight) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const Sampling rules[] = {{.temperature = 1},
                            {.temperature = 0.7, .top_k = 20, .top_p = 0.8},
                            {.temperature = 1.3, .top_p = 0.95},
                            {.temperature = 1, .min_p = 0.05},
                            {.temperature = 0.6, .top_k = 7, .top_p = 0.99, .min_p = 0.01},
                            {.temperature = 2, .top_k = 3000},
                            {.temperature = 50},
                            {.temperature = 1e-3},
                            {.temperature = 1, .top_k = 1},
                            {.temperature = 1, .repetition_penalty = 1.2},
                            {.temperature = 0.8, .top_k = 50, .presence_penalty = 1.5, .frequency_penalty = 0.3},
                            {.presence_penalty = 2}};
  for (const int64_t vocab : {int64_t{5}, int64_t{1000}, int64_t{151936}}) {
    Drawer drawer(1, vocab);
    for (const Kind kind : {Kind::kNormal, Kind::kPeaked, Kind::kEqual, Kind::kFewValues}) {
      for (Sampling s : rules) {
        s.seed = random();
        const std::vector<int32_t> prompt = {0, 2, 3, static_cast<int32_t>(random() % static_cast<uint32_t>(vocab))};
        const Choice choice = {s, static_cast<int32_t>(vocab - vocab / 4), prompt};
        SCOPED_TRACE(testing::Message() << "vocab " << vocab << " kind " << static_cast<int>(kind) << " T "
                                        << s.temperature << " k " << s.top_k << " p " << s.top_p << " min " << s.min_p);
        Expected expected(choice);
        ASSERT_TRUE(drawer.runner().choose_by(0, choice));
        std::vector<float> logits = fresh_logits(kind, vocab, random);
        drawer.give(logits);
        drawer.runner().extend(drawer.rows());
        EXPECT_TRUE(expected.is_right(logits, drawer.ids()[0]));
        drawer.runner().seat(drawer.rows());
        for (int step = 0; step < 4; ++step) {
          if (step == 2) drawer.give(logits = fresh_logits(kind, vocab, random));
          drawer.runner().decode();
          EXPECT_TRUE(expected.is_right(logits, drawer.ids()[0])) << "step " << step;
        }
      }
    }
    EXPECT_EQ(drawer.runner().recordings().captured, 1);
  }
}

TEST_F(CudaDraw, EachSequenceHasItsRule) {
  constexpr int64_t kVocab = 5000;
  std::mt19937 random(11);
  Drawer drawer(3, kVocab);
  const Choice choices[] = {{{.temperature = 1, .frequency_penalty = 3, .seed = 4}, kVocab, {}},
                            {{}, kVocab, {}},
                            {{.temperature = 1, .top_k = 40, .seed = 5}, 4000, {}}};
  std::vector<Expected> expected(std::begin(choices), std::end(choices));
  for (int32_t s = 0; s < 3; ++s) ASSERT_TRUE(drawer.runner().choose_by(s, choices[s]));
  drawer.runner().seat(drawer.rows());
  for (int step = 0; step < 50; ++step) {
    const std::vector<float> logits = fresh_logits(Kind::kNormal, 3 * kVocab, random);
    drawer.give(logits);
    drawer.runner().decode();
    const auto ids = drawer.ids();
    for (int s = 0; s < 3; ++s) {
      const auto row = logits.begin() + s * kVocab;
      EXPECT_TRUE(expected[static_cast<size_t>(s)].is_right({row, row + kVocab}, ids[static_cast<size_t>(s)]))
          << "sequence " << s << " step " << step;
    }
  }
}

TEST_F(CudaDraw, LogitsThatAreNotFiniteAreSaid) {
  Drawer drawer(1, 100);
  std::vector<float> logits(100, 1);
  logits[7] = NAN;
  ASSERT_TRUE(drawer.runner().choose_by(0, {{.temperature = 1}, 100, {}}));
  drawer.give(logits);
  drawer.runner().seat(drawer.rows());
  drawer.runner().decode();
  EXPECT_EQ(drawer.ids()[0], -1);
  // A new answer is greedy again.
  logits[7] = 2;
  drawer.give(logits);
  ASSERT_TRUE(drawer.runner().choose_by(0, {}));
  drawer.runner().seat(drawer.rows());
  drawer.runner().decode();
  EXPECT_EQ(drawer.ids()[0], 7);
}

}  // namespace
}  // namespace vireo::testing_ops
