// Conversations of several turns on models/tiny: what is kept, what is remembered, and that neither changes an answer.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "vireo/vireo.h"

namespace vireo {
namespace {

const std::string kTiny = VIREO_SOURCE_DIR "/models/tiny";
const std::string kScenes = VIREO_SOURCE_DIR "/tests/data/scenes/";

std::unique_ptr<Engine> load(int threads = 2) {
  Options options;
  options.checkpoint = kTiny;
  options.device = "cpu";
  options.threads = threads;
  return Engine::load(options);
}

Message text(const std::string& role, const std::string& words) {
  return {.role = role, .content = {{.text = words}}};
}

Message picture(const std::string& file, const std::string& words) {
  return {.role = "user",
          .content = {{.kind = Part::Kind::kImage, .image = {.path = kScenes + file}}, {.text = words}}};
}

// Asks the turns one after the other; each answer becomes part of the next prompt.
std::vector<Answer> converse(Engine& engine, const std::vector<Message>& turns, const Request& options = {}) {
  std::vector<Answer> answers;
  Request request = options;
  for (const Message& turn : turns) {
    request.messages.push_back(turn);
    answers.push_back(engine.generate(request));
    request.messages.push_back(text("assistant", answers.back().text));
  }
  return answers;
}

const std::vector<Message> kTurns = {picture("s000.png", "Describe this image."), text("user", "What is 15 + 36?"),
                                     picture("s001.png", "What color is the square?"),
                                     text("user", "What shape is it?")};

TEST(Conversation, LaterTurnsComputeOnlyWhatIsNew) {
  const auto engine = load();
  const auto answers = converse(*engine, kTurns);
  EXPECT_EQ(answers[0].cached_tokens, 0);
  for (size_t i = 1; i < answers.size(); ++i) {
    // All of the turn before but its last token, which was never fed.
    EXPECT_GE(answers[i].cached_tokens, answers[i - 1].prompt_tokens + answers[i - 1].completion_tokens - 1) << i;
    EXPECT_LT(answers[i].cached_tokens, answers[i].prompt_tokens);
  }
}

TEST(Conversation, AnswersAsIfEveryTurnWereComputedAfresh) {
  const auto kept = load();
  const auto answers = converse(*kept, kTurns);
  Request request;
  for (size_t i = 0; i < kTurns.size(); ++i) {
    request.messages.push_back(kTurns[i]);
    const auto fresh = load(1);
    EXPECT_EQ(fresh->generate(request).tokens, answers[i].tokens) << "turn " << i;
    request.messages.push_back(text("assistant", answers[i].text));
  }
}

TEST(Conversation, APictureIsEncodedOnce) {
  const auto engine = load();
  converse(*engine, kTurns);
  EXPECT_EQ(engine->image_cache_stats().misses, 2);
  // Another conversation with a known picture.
  const Answer a = engine->generate({.messages = {picture("s001.png", "What color is the square?")}});
  EXPECT_EQ(a.text, "The square is brown.");
  EXPECT_EQ(engine->image_cache_stats().misses, 2);
  EXPECT_EQ(engine->image_cache_stats().hits, 1);
}

// The same place, the same size, another picture: nothing of the first may be kept.
TEST(Conversation, AnotherPictureIsNotTakenForTheOneBefore) {
  const auto engine = load();
  const auto ask = [&](const std::vector<uint8_t>& pixels) {
    const Picture raw{.rgb = pixels.data(), .width = 128, .height = 128, .stride = 384};
    Message m{.role = "user",
              .content = {{.kind = Part::Kind::kImage, .image = raw}, {.text = "Describe this image."}}};
    return engine->generate({.messages = {m}});
  };
  std::vector<uint8_t> grey(128 * 128 * 3, 127), red = grey;
  for (size_t i = 0; i < red.size(); i += 3) red[i] = 255;
  const Answer first = ask(grey), second = ask(red);
  EXPECT_EQ(second.cached_tokens, 5);  // what stands before the picture
  EXPECT_NE(first.text, second.text);
}

TEST(Conversation, AnEditedTurnCutsTheCacheThere) {
  const auto engine = load();
  Request request{.messages = {text("user", "What is 15 + 36?")}};
  engine->generate(request);
  request.messages = {text("user", "What is 15 + 37?")};
  const Answer a = engine->generate(request);
  EXPECT_GT(a.cached_tokens, 5);
  EXPECT_EQ(a.tokens, load()->generate(request).tokens);
}

TEST(Conversation, StopStringsEndTheAnswerAndAreNotShown) {
  const auto engine = load();
  Request request{.messages = {picture("s000.png", "Describe this image.")}};
  request.stop = {"green"};
  std::string shown;
  const Answer a = engine->generate(request, [&](std::string_view piece) {
    shown += piece;
    return true;
  });
  EXPECT_EQ(a.text, "A black cross on a ");
  EXPECT_EQ(shown, a.text);
  EXPECT_EQ(a.finish_reason, "stop");
}

TEST(Conversation, SamplingFollowsItsSeed) {
  const auto engine = load();
  Request request{.messages = {text("user", "Tell me something.")}, .max_new_tokens = 24};
  request.sampling = {.temperature = 1.5, .top_k = 50, .seed = 1};
  const auto first = engine->generate(request).tokens;
  EXPECT_EQ(engine->generate(request).tokens, first);
  request.sampling.seed = 2;
  EXPECT_NE(engine->generate(request).tokens, first);
  request.sampling.temperature = -1;
  EXPECT_THROW(engine->generate(request), Error);
}

TEST(Conversation, ReportsItsSlowParts) {
  const auto engine = load();
  int vision = 0, prefill = 0;
  engine->generate({.messages = {kTurns[0]}}, {}, [&](const char* stage, int64_t done, int64_t total) {
    EXPECT_LT(done, total);
    (stage == std::string("vision") ? vision : prefill)++;
  });
  EXPECT_EQ(vision, 6);
  EXPECT_EQ(prefill, 1);
}

}  // namespace
}  // namespace vireo
