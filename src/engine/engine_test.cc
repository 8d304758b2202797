// The public face on models/tiny: whole answers, single steps, cancellation, bad numbers.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/cosine.h"
#include "files/json.h"
#include "files/test_files.h"
#include "vireo/vireo.h"

namespace vireo {
namespace {

namespace fs = std::filesystem;

const std::string kTiny = VIREO_SOURCE_DIR "/models/tiny";
const std::string kScene = VIREO_SOURCE_DIR "/tests/data/scenes/s000.png";
const std::string kSceneAnswer = "A black cross on a green background.";

std::unique_ptr<Engine> load(Options options = {}) {
  if (options.checkpoint.empty()) options.checkpoint = kTiny;
  if (options.device == "auto") options.device = "cpu";  // whatever else this build and machine have
  return Engine::load(options);
}

Request ask(const std::string& text, int max_new_tokens = 32) {
  Request request{.max_new_tokens = max_new_tokens};
  request.messages.push_back({.role = "user", .content = {{.text = text}}});
  return request;
}

Request ask_about_scene(int max_new_tokens = 32) {
  Request request = ask("Describe this image.", max_new_tokens);
  auto& content = request.messages[0].content;
  content.insert(content.begin(), {.kind = Part::Kind::kImage, .image = {.path = kScene}});
  return request;
}

int32_t argmax(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST(Engine, AnswersAndCounts) {
  const auto engine = load();
  const Answer a = engine->generate(ask_about_scene());
  EXPECT_EQ(a.text, kSceneAnswer);
  EXPECT_EQ(a.prompt_tokens, 70);
  EXPECT_EQ(a.image_tokens, 50);
  EXPECT_EQ(a.patches, 200);
  EXPECT_EQ(a.finish_reason, "stop");
  EXPECT_EQ(a.completion_tokens, static_cast<int>(a.tokens.size()));
  const auto& eos = engine->info().eos_tokens;
  EXPECT_EQ(std::count(eos.begin(), eos.end(), a.tokens.back()), 1);
  EXPECT_GE(a.timings.total_ms, a.timings.first_token_ms);
  EXPECT_GT(a.timings.first_token_ms, 0);
}

TEST(Engine, SaysWhatItLoaded) {
  const ModelInfo info = load({.max_seq = 100})->info();
  EXPECT_EQ(info.model_type, "qwen3_vl");
  EXPECT_EQ(info.max_seq, 100);
  EXPECT_EQ(info.vocab_size, 1088);
  EXPECT_EQ(info.eos_tokens, (std::vector<int32_t>{1024, 1026}));
  EXPECT_EQ(info.weight_bytes, 17704704u);
  EXPECT_EQ(info.device.substr(0, 5), "cpu (");
  EXPECT_EQ(load({.device = "reference"})->info().device.substr(0, 9), "reference");
}

TEST(Engine, TheSameRequestGivesTheSameAnswer) {
  const auto engine = load();
  const Answer first = engine->generate(ask_about_scene());
  const Answer other = engine->generate(ask("What is 15 + 36?"));
  const Answer again = engine->generate(ask_about_scene());
  EXPECT_EQ(other.text, "51");
  EXPECT_EQ(again.text, first.text);
  EXPECT_EQ(again.tokens, first.tokens);
}

TEST(Engine, ChunksAndThreadsDoNotMatter) {
  const std::vector<int32_t> whole = load()->generate(ask_about_scene()).tokens;
  EXPECT_EQ(load({.prefill_chunk = 7})->generate(ask_about_scene()).tokens, whole);
  EXPECT_EQ(load({.prefill_chunk = 1})->generate(ask_about_scene()).tokens, whole);
  EXPECT_EQ(load({.threads = 1})->generate(ask_about_scene()).tokens, whole);
}

TEST(Engine, LengthEndsAnAnswer) {
  const auto engine = load();
  for (int n : {1, 3}) {
    const Answer a = engine->generate(ask_about_scene(n));
    EXPECT_EQ(a.finish_reason, "length");
    EXPECT_EQ(a.completion_tokens, n);
    EXPECT_EQ(kSceneAnswer.rfind(a.text, 0), 0u) << a.text;
  }
  Request forced = ask("What is 15 + 36?", 20);
  forced.ignore_eos = true;
  EXPECT_EQ(engine->generate(forced).completion_tokens, 20);
}

TEST(Engine, PiecesOfTextAddUpToTheText) {
  const auto engine = load();
  std::string text;
  int pieces = 0;
  const Answer a = engine->generate(ask_about_scene(), [&](std::string_view piece) {
    EXPECT_FALSE(piece.empty());
    text += piece;
    ++pieces;
    return true;
  });
  EXPECT_EQ(text, a.text);
  EXPECT_GT(pieces, 3);
}

TEST(Engine, OnTextStopsTheAnswer) {
  const auto engine = load();
  std::string text;
  const Answer a = engine->generate(ask_about_scene(), [&](std::string_view piece) {
    text += piece;
    return text.size() < 5;
  });
  EXPECT_EQ(a.finish_reason, "cancelled");
  EXPECT_EQ(a.text, text);
  EXPECT_LT(a.text.size(), kSceneAnswer.size());
  EXPECT_EQ(engine->generate(ask_about_scene()).text, kSceneAnswer);
}

TEST(Engine, SingleStepsReproduceAnAnswer) {
  for (const char* device : {"cpu", "reference"}) {
    const auto engine = load({.device = device});
    const Answer a = engine->generate(ask_about_scene());
    const int64_t before = engine->latency_stats().count;
    EXPECT_EQ(before, a.completion_tokens - 1);
    const PromptInfo prompt = engine->set_prompt(ask_about_scene());
    EXPECT_EQ(static_cast<int>(prompt.ids.size()), a.prompt_tokens);
    EXPECT_EQ(prompt.positions.size(), prompt.ids.size());
    EXPECT_EQ(prompt.image_tokens, 50);
    EXPECT_EQ(prompt.patches, 200);
    std::vector<int32_t> tokens = {argmax(engine->prefill())};
    while (tokens.size() < a.tokens.size()) tokens.push_back(argmax(engine->decode_step(tokens.back())));
    EXPECT_EQ(tokens, a.tokens) << device;
    const LatencyStats stats = engine->latency_stats();
    EXPECT_EQ(stats.count, 2 * before);
    EXPECT_GT(stats.min, 0);
    EXPECT_LE(stats.min, stats.p50);
    EXPECT_LE(stats.p50, stats.p95);
    EXPECT_LE(stats.p95, stats.max);
    EXPECT_LE(stats.min, stats.mean);
    EXPECT_LE(stats.mean, stats.max);
  }
}

TEST(Engine, PrefillAgainStartsThePromptAfresh) {
  const auto engine = load();
  engine->set_prompt_text("What is 15 + 36?");
  const std::vector<float> first = engine->prefill();
  EXPECT_EQ(first.size(), 1088u);
  const std::vector<float> step = engine->decode_step(argmax(first));
  EXPECT_EQ(engine->prefill(), first);
  EXPECT_EQ(engine->decode_step(argmax(first)), step);
}

TEST(Engine, DecodingEqualsPrefillOfTheLongerPrompt) {
  const auto engine = load({.device = "reference"});
  engine->set_prompt_text("What is 15 + 36?");
  const std::vector<float> first = engine->prefill();
  const std::vector<float> decoded = engine->decode_step(argmax(first));
  Request longer = ask("What is 15 + 36?");
  const PromptInfo prompt = engine->set_prompt_text("What is 15 + 36?");
  EXPECT_EQ(engine->prefill(), first);
  EXPECT_EQ(engine->decode_step(argmax(first)), decoded);
  EXPECT_EQ(prompt.ids.size(), 24u);
}

TEST(Engine, SystemTextIsPartOfThePrompt) {
  const auto engine = load();
  const PromptInfo without = engine->set_prompt_text("Hello"), with = engine->set_prompt_text("Hello", "Be short.");
  EXPECT_GT(with.ids.size(), without.ids.size() + 3);
}

TEST(Engine, StepsOutOfOrderAreRefused) {
  const auto engine = load();
  const std::string no_prompt = "kUsage: prefill needs a prompt: call set_prompt first";
  const std::string no_prefill = "kUsage: decode_step needs a prefilled prompt: call prefill first";
  EXPECT_EQ(error_of([&] { engine->prefill(); }), no_prompt);
  EXPECT_EQ(error_of([&] { engine->decode_step(1); }), no_prefill);
  engine->set_prompt_text("Hello");
  EXPECT_EQ(error_of([&] { engine->decode_step(1); }), no_prefill);
  engine->prefill();
  EXPECT_EQ(error_of([&] { engine->decode_step(1088); }), "kUsage: token 1088 is outside the vocabulary of 1088");
  EXPECT_EQ(error_of([&] { engine->decode_step(-1); }), "kUsage: token -1 is outside the vocabulary of 1088");
  engine->reset();
  EXPECT_EQ(error_of([&] { engine->decode_step(1); }), no_prefill);
  EXPECT_EQ(error_of([&] { engine->prefill(); }), no_prompt);
}

TEST(Engine, DecodingStopsAtMaxSeq) {
  const auto engine = load({.max_seq = 26});
  ASSERT_EQ(engine->set_prompt_text("What is 15 + 36?").ids.size(), 24u);
  engine->prefill();
  engine->decode_step(1);
  engine->decode_step(2);
  EXPECT_EQ(error_of([&] { engine->decode_step(3); }),
            "kCapacity: the conversation already has max_seq 26 tokens: raise --max-seq");
  // The last token is never stored: 24 + 3 - 1.
  EXPECT_EQ(engine->generate(ask("What is 15 + 36?", 3)).text, "51");
  EXPECT_EQ(error_of([&] { engine->generate(ask("What is 15 + 36?", 4)); }),
            "kCapacity: the prompt has 24 tokens, which with max_new_tokens 4 does not fit in max_seq 26: shorten it, "
            "or raise --max-seq");
}

TEST(Engine, StaysUsableAfterABadRequest) {
  const auto engine = load();
  Request bad = ask_about_scene();
  bad.messages[0].content[0].image.path = "/no/such.png";
  EXPECT_EQ(error_of([&] { engine->generate(bad); }), "kNotFound: cannot open /no/such.png: No such file or directory");
  EXPECT_NE(error_of([&] { engine->generate({}); }), "");
  EXPECT_EQ(engine->generate(ask_about_scene()).text, kSceneAnswer);
}

TEST(Engine, CancelFromAnotherThread) {
  using Clock = std::chrono::steady_clock;
  const auto engine = load();
  Request endless = ask_about_scene(3900);
  endless.ignore_eos = true;
  Clock::time_point asked;
  std::thread other;
  const std::string sentence = error_of([&] {
    engine->generate(endless, [&](std::string_view) {
      if (!other.joinable())
        other = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          asked = Clock::now();
          engine->cancel();
        });
      return true;
    });
  });
  const auto took = Clock::now() - asked;
  ASSERT_TRUE(other.joinable());
  other.join();
  EXPECT_EQ(sentence, "kCancelled: the request was cancelled");
  EXPECT_LT(took, std::chrono::seconds(2));
  EXPECT_EQ(engine->generate(ask_about_scene()).text, kSceneAnswer);
}

TEST(Engine, CancelBeforeARequestEndsIt) {
  const auto engine = load();
  engine->cancel();
  EXPECT_EQ(error_of([&] { engine->generate(ask_about_scene()); }), "kCancelled: the request was cancelled");
  EXPECT_EQ(engine->generate(ask_about_scene()).text, kSceneAnswer);
}

TEST(Engine, WarmupLeavesNoTrace) {
  const auto engine = load();
  engine->warmup();
  EXPECT_NE(error_of([&] { engine->prefill(); }), "");
  EXPECT_EQ(engine->generate(ask_about_scene()).text, kSceneAnswer);
  EXPECT_EQ(engine->graph_stats().captured, 0);
}

// As if loaded with the overrides, to the last bit.
TEST(Engine, TiersChangeInPlace) {
  const auto logits = [](Engine& engine) {
    engine.set_prompt_text("What is 15 + 36?");
    engine.prefill();
    return engine.decode_step(7);
  };
  const auto engine = load();
  const auto plain = logits(*engine);
  const uint64_t bytes = engine->info().weight_bytes;
  engine->set_wq_overrides({{"gate_up", "int8"}, {"L1.o_proj", "w4"}, {"lm_head", "w8"}});
  EXPECT_EQ(logits(*engine),
            logits(*load({.wq_overrides = {{"gate_up", "int8"}, {"L1.o_proj", "w4"}, {"lm_head", "w8"}}})));
  EXPECT_NE(logits(*engine), plain);
  EXPECT_GT(engine->info().weight_bytes, bytes);
  for (const auto& [key, tier] :
       {std::pair{"L99.o_proj", "w8"}, {"L07.o_proj", "w8"}, {"nose", "w8"}, {"o_proj", "fp4"}}) {
    EXPECT_THROW(engine->set_wq_overrides({{key, tier}}), Error) << key;
    EXPECT_NO_THROW(engine->decode_step(3)) << "the conversation goes on";
  }
  engine->set_wq_overrides({});
  EXPECT_EQ(logits(*engine), plain);
  EXPECT_EQ(engine->info().weight_bytes, bytes);
}

TEST(Engine, LowMemoryKeepsNoBf16OfWhatHasATier) {
  const auto logits = [](Engine& engine) {
    engine.set_prompt(ask_about_scene());
    return engine.prefill();
  };
  for (const std::string device : {"cpu", "reference"}) {
    const auto plain = load({.device = device}), kept = load({.device = device, .weight_mode = "int8"});
    const auto alone = load({.device = device, .weight_mode = "int8", .low_memory = true});
    EXPECT_LT(alone->info().weight_bytes, plain->info().weight_bytes);
    EXPECT_LT(plain->info().weight_bytes, kept->info().weight_bytes);
    EXPECT_EQ(logits(*kept), logits(*plain)) << device;
    EXPECT_NE(logits(*alone), logits(*plain)) << device;
    EXPECT_GT(cosine(logits(*alone), logits(*plain)), 0.999) << device;
    EXPECT_EQ(alone->generate(ask_about_scene()).text, kSceneAnswer) << device;
    // The checkpoint is read again for what becomes BF16.
    alone->set_wq_overrides({{"gate_up", "bf16"}, {"L1.o_proj", "w4"}});
    const auto loaded = load({.device = device,
                              .weight_mode = "int8",
                              .wq_overrides = {{"gate_up", "bf16"}, {"L1.o_proj", "w4"}},
                              .low_memory = true});
    EXPECT_EQ(logits(*alone), logits(*loaded)) << device;
    EXPECT_EQ(alone->info().weight_bytes, loaded->info().weight_bytes);
  }
}

TEST(Engine, LowMemoryWithoutATierIsNoted) {
  const auto plain = load(), low = load({.low_memory = true});
  EXPECT_EQ(low->info().weight_bytes, plain->info().weight_bytes);
  ASSERT_FALSE(low->info().notes.empty());
  EXPECT_EQ(low->info().notes.back().find("--low-memory changes nothing"), 0u);
}

// Attention always reads the rounded rows, those of the prompt's own chunk included.
TEST(Engine, AnInt8CacheIsTheSameForAnyChunk) {
  const auto logits = [](int chunk, const std::string& mode, const std::string& device) {
    const auto engine = load({.device = device, .kv_mode = mode, .prefill_chunk = chunk});
    engine->set_prompt(ask_about_scene());
    return engine->prefill();
  };
  const auto whole = logits(0, "int8", "cpu");
  EXPECT_EQ(logits(7, "int8", "cpu"), whole);
  EXPECT_NE(logits(0, "bf16", "cpu"), whole);
  const auto engine = load({.kv_mode = "int8"});
  EXPECT_EQ(engine->generate(ask_about_scene()).text, kSceneAnswer);
  EXPECT_LT(engine->info().kv_bytes, load()->info().kv_bytes * 0.55);
}

TEST(Engine, TokenizeTakesTextAsText) {
  const auto engine = load();
  EXPECT_EQ(engine->tokenize("Hello").size(), 1u);
  EXPECT_GT(engine->tokenize("<|im_end|>").size(), 1u);
  EXPECT_TRUE(engine->tokenize("").empty());
}

TEST(Engine, RefusesBadOptionsBeforeFiles) {
  EXPECT_EQ(error_of([] { Engine::load({.checkpoint = "/no/such", .kv_mode = "fp7"}); }),
            "kUsage: --kv-mode fp7 is unknown: use bf16, int8");
  EXPECT_EQ(error_of([] { load({.max_seq = 5000}); }),
            "kUsage: --max-seq 5000 is beyond the 4096 positions of this model: use at most that");
}

TEST(Engine, ReportsProgressUpToTheEnd) {
  uint64_t last = 0, all = 0;
  Engine::load({.checkpoint = kTiny, .device = "cpu"}, [&](uint64_t done, uint64_t total) {
    EXPECT_GE(done, last);
    last = done;
    all = total;
  });
  EXPECT_EQ(last, all);
  EXPECT_GT(all, 0u);
}

// A copy of models/tiny with the bytes of one tensor changed by `edit`.
template <typename Edit>
void write_patched(const TempFolder& folder, const std::string& name, Edit edit) {
  fs::copy(kTiny, folder.path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  const Json index = read_json(fs::path(kTiny) / "model.safetensors.index.json");
  const std::string shard = index["weight_map"][name].get<std::string>();
  std::string bytes = read_file(fs::path(kTiny) / shard, size_t{1} << 30);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const Json tensors = parse_json(bytes.substr(8, header), shard);
  const auto offsets = tensors[name]["data_offsets"].get<std::vector<size_t>>();
  edit(bytes.data() + 8 + header + offsets[0], offsets[1] - offsets[0]);
  folder.write(shard, bytes);
}

TEST(Engine, NamesTheFirstBadTensorAndTheBadWeight) {
  const TempFolder folder;
  write_patched(folder, "model.language_model.layers.2.mlp.down_proj.weight",
                [](char* data, size_t) { std::memcpy(data, "\xc0\x7f", 2); });
  for (const char* device : {"cpu", "reference"}) {
    const auto engine = load({.checkpoint = folder.path().string(), .device = device});
    const std::string sentence =
        "kDevice: the logits are not finite; the first bad tensor is lm.layer.2, and the checkpoint's "
        "'model.language_model.layers.2.mlp.down_proj.weight' in model-00002-of-00002.safetensors holds NaN or "
        "infinity: download it again";
    EXPECT_EQ(error_of([&] { engine->generate(ask("What is 15 + 36?")); }), sentence) << device;
    engine->set_prompt_text("What is 15 + 36?");
    EXPECT_EQ(error_of([&] { engine->prefill(); }), sentence) << device;
  }
}

// Equal rows of the tied head give equal logits, and the lowest id wins on every backend.
TEST(Engine, TiesGoToTheLowestId) {
  const Answer plain = load()->generate(ask("What is 15 + 36?", 1));
  ASSERT_EQ(plain.text, "5");
  const int32_t chosen = plain.tokens[0];
  for (int32_t twin : {1, 1087}) {
    const TempFolder folder;
    write_patched(folder, "model.language_model.embed_tokens.weight", [&](char* data, size_t bytes) {
      const size_t row = bytes / 1088;
      std::memcpy(data + row * static_cast<size_t>(twin), data + row * static_cast<size_t>(chosen), row);
    });
    for (const char* device : {"cpu", "reference"}) {
      const auto engine = load({.checkpoint = folder.path().string(), .device = device});
      EXPECT_EQ(engine->generate(ask("What is 15 + 36?", 1)).tokens[0], std::min(chosen, twin)) << device;
      engine->set_prompt_text("What is 15 + 36?");
      const std::vector<float> logits = engine->prefill();
      EXPECT_EQ(logits[static_cast<size_t>(twin)], logits[static_cast<size_t>(chosen)]) << device;
    }
  }
}

}  // namespace
}  // namespace vireo
