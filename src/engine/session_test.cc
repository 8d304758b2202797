// A session over a runner that runs ahead as far as it is let: the same tokens, and never a step beyond what was asked for.
// SPDX-License-Identifier: Apache-2.0
#include "engine/session.h"

#include <gtest/gtest.h>

#include "engine/model.h"

namespace vireo {
namespace {

// Runs steps ahead on a backend that computes at once.
class EagerAhead : public Runner {
 public:
  explicit EagerAhead(std::unique_ptr<Runner> inner) : inner_(std::move(inner)) {}

  void extend(const HostStep& rows) override {
    inner_->extend(rows);
    forget();
  }
  void seat(const HostStep& rows) override {
    inner_->seat(rows);
    forget();
  }
  void run_ahead(int64_t steps) override { ahead_ = steps; }
  void decode() override {
    ++asked_;
    while (static_cast<int64_t>(ids_.size()) < asked_ + ahead_) {
      inner_->decode();
      ids_.push_back(inner_->sampled()[0]);
      ++steps;
    }
  }
  std::span<const int32_t> sampled() override {
    if (asked_ == 0) return inner_->sampled();
    return {&ids_[static_cast<size_t>(asked_ - 1)], 1};
  }
  Tensor logits() const override { return inner_->logits(); }

  int64_t steps = 0;  // since the last extend

 private:
  void forget() {
    ids_.clear();
    asked_ = ahead_ = steps = 0;
  }

  std::unique_ptr<Runner> inner_;
  std::vector<int32_t> ids_;  // of the steps since the last seat
  int64_t asked_ = 0, ahead_ = 0;
};

struct Rig {
  explicit Rig(int max_seq)
      : model({.checkpoint = VIREO_SOURCE_DIR "/models/tiny", .device = "cpu", .max_seq = max_seq}, {}),
        prompts(model.files.config, model.files.tokenizer, model.files.chat_template, model.files.preprocessor,
                {.max_seq = max_seq}) {}

  Session session(Runner& runner) {
    return Session({model.files.config, *model.backend, *model.tower, *model.decoder, runner, images,
                    model.step_shape.max_rows, [] {}});
  }

  Prompt prompt(int answer) {
    Request request{.max_new_tokens = answer};
    request.messages.push_back({.role = "user", .content = {{.text = "Spell MOUSE backwards."}}});
    return prompts.build(request);
  }

  Model model;
  PromptBuilder prompts;
  ImageCache images{0};
};

// `count` greedy tokens of the prompt.
std::vector<int32_t> greedy(Session& session, const Prompt& prompt, int64_t count, bool ahead) {
  session.begin(prompt);
  std::vector<int32_t> ids = {session.extend(prompt)};
  session.seat(ids[0]);
  for (int64_t left = count - 1; left > 0; --left) ids.push_back(session.decode(ids.back(), ahead ? left - 1 : 0));
  return ids;
}

TEST(Session, RunsAheadToTheLastPlaceOfTheCacheAndNotBeyond) {
  Rig rig(64);  // one page
  const int64_t length = static_cast<int64_t>(rig.prompt(1).ids.size());
  const int64_t count = 64 - length + 1;  // the last token is never stored
  const Prompt prompt = rig.prompt(static_cast<int>(count));
  Session plain = rig.session(*rig.model.runner);
  const std::vector<int32_t> expected = greedy(plain, prompt, count, false);
  EagerAhead runner(rig.model.make_walker());
  Session session = rig.session(runner);
  EXPECT_EQ(greedy(session, prompt, count, true), expected);
  EXPECT_EQ(runner.steps, count - 1);
  EXPECT_EQ(session.length(), 64);
}

TEST(Session, AStepThatRanAheadInVainLeavesNoTrace) {
  Rig rig(64);
  const Prompt prompt = rig.prompt(12);
  Session plain = rig.session(*rig.model.runner);
  const std::vector<int32_t> expected = greedy(plain, prompt, 12, false);
  EagerAhead runner(rig.model.make_walker());
  Session session = rig.session(runner);
  session.begin(prompt);
  const int32_t first = session.extend(prompt);
  session.seat(first);
  EXPECT_EQ(session.decode(first, 5), expected[1]);
  EXPECT_EQ(runner.steps, 2);
  // Another token takes the place of the one that the step ahead was fed.
  const int32_t other = expected[1] == 7 ? 8 : 7;
  session.seat(other);
  const int32_t after_other = session.decode(other);
  Session afresh = rig.session(*rig.model.runner);
  afresh.begin(prompt);
  afresh.extend(prompt);
  afresh.seat(first);
  afresh.decode(first);
  afresh.seat(other);
  EXPECT_EQ(afresh.decode(other), after_other);
  EXPECT_EQ(greedy(session, prompt, 12, true), expected);
}

}  // namespace
}  // namespace vireo
