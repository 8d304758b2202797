// Small models of the published form: that they load and answer, that their bytes depend on the seed alone, and what
// happens to the folders.
// SPDX-License-Identifier: Apache-2.0
#include "engine/random_checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "engine/published_shapes.h"
#include "files/checkpoint.h"
#include "files/json.h"
#include "files/test_files.h"

namespace vireo {
namespace {

namespace fs = std::filesystem;

// The published form with all sizes small but the vocabulary, which the tokenizer needs.
ModelConfig small_config(const char* size) {
  ModelConfig config = published_config(size, 3, 3);
  config.text.hidden_size = 128;
  config.text.num_heads = 4;
  config.text.num_kv_heads = 2;
  config.text.intermediate_size = 256;
  config.vision.hidden_size = 64;
  config.vision.num_heads = 2;
  config.vision.intermediate_size = 128;
  config.vision.out_hidden_size = 128;
  if (config.text.num_experts > 0) {
    config.text.num_experts = 16;
    config.text.moe_intermediate_size = 64;
  }
  return config;
}

RandomCheckpoint options_for(const fs::path& folder) {
  RandomCheckpoint o;
  o.size = "small";
  o.seed = 5;
  o.folder = folder;
  o.threads = 2;
  return o;
}

std::string bytes_of(const fs::path& path) {
  return read_file(path, 256u << 20);
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

const std::set<std::string> kFiles = {"chat_template.json",
                                      "config.json",
                                      "generation_config.json",
                                      "model.safetensors",
                                      "preprocessor_config.json",
                                      "random_checkpoint.json",
                                      "tokenizer.json",
                                      "tokenizer_config.json",
                                      "video_preprocessor_config.json"};

// Spread as the logits of an untrained model are: finite, about 1 wide, no token far ahead of all others.
void expect_sane(const std::vector<float>& logits) {
  double sum = 0, squares = 0, best = -INFINITY;
  for (float x : logits) {
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += double{x} * x;
    best = std::max<double>(best, x);
  }
  const auto n = static_cast<double>(logits.size());
  const double deviation = std::sqrt(squares / n - sum / n * sum / n);
  EXPECT_GT(deviation, 0.1);
  EXPECT_LT(deviation, 3);
  EXPECT_LT(best, 10 * deviation);
}

int64_t argmax(const std::vector<float>& logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

Request picture_request(const std::vector<uint8_t>& rgb) {
  Part picture{.kind = Part::Kind::kImage};
  picture.image.rgb = rgb.data();
  picture.image.width = picture.image.height = 64;
  picture.image.stride = 64 * 3;
  Request request;
  request.messages.push_back({.role = "user", .content = {picture, {.text = "What is this?"}}});
  request.max_new_tokens = 4;
  request.ignore_eos = true;
  return request;
}

void expect_it_runs(const char* size) {
  SCOPED_TRACE(size);
  const TempFolder folder;
  const fs::path out = folder.path() / "model";
  write_random_checkpoint(small_config(size), options_for(out), {});
  EXPECT_EQ(names_in(out), kFiles);
  Options options;
  options.checkpoint = out.string();
  options.device = "reference";
  const auto engine = Engine::load(options);
  engine->set_prompt_text("Hello");
  const auto hello = engine->prefill();
  expect_sane(hello);
  engine->set_prompt_text("Good night");
  EXPECT_NE(argmax(engine->prefill()), argmax(hello));
  const std::vector<uint8_t> rgb(64 * 64 * 3, 77);
  const Answer answer = engine->generate(picture_request(rgb));
  EXPECT_EQ(answer.completion_tokens, 4);
  EXPECT_GT(answer.image_tokens, 0);
  EXPECT_TRUE(answer.notes.empty() || answer.notes[0].find("template") == std::string::npos);
}

TEST(RandomCheckpoint, Runs) {
  expect_it_runs("2b");       // tied head
  expect_it_runs("8b");       // its own head
  expect_it_runs("30b-a3b");  // experts
}

TEST(RandomCheckpoint, BytesDoNotDependOnThreadsOrShards) {
  const TempFolder folder;
  const ModelConfig config = small_config("2b");
  RandomCheckpoint o = options_for(folder.path() / "one");
  o.threads = 1;
  write_random_checkpoint(config, o, {});
  o = options_for(folder.path() / "many");
  o.threads = 3;
  o.max_shard_bytes = 1'000'000;
  write_random_checkpoint(config, o, {});

  EXPECT_FALSE(fs::exists(folder.path() / "many/model.safetensors"));
  EXPECT_TRUE(fs::exists(folder.path() / "many/model.safetensors.index.json"));
  const Checkpoint one = Checkpoint::open(folder.path() / "one"), many = Checkpoint::open(folder.path() / "many");
  ASSERT_EQ(one.tensors().size(), published_tensors(config).size());
  ASSERT_EQ(many.tensors().size(), one.tensors().size());
  for (const HostTensor& t : one.tensors()) {
    const HostTensor& same = many.get(t.name, t.shape);
    const size_t bytes = static_cast<size_t>(t.size()) * sizeof(bf16);
    EXPECT_EQ(std::memcmp(t.data, same.data, bytes), 0) << t.name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data) % 8, 0u) << t.name;
  }
}

TEST(RandomCheckpoint, AnotherSeedIsAnotherModelAndReplacesTheFirst) {
  const TempFolder folder;
  RandomCheckpoint o = options_for(folder.path() / "model");
  o.max_shard_bytes = 1'000'000;
  write_random_checkpoint(small_config("2b"), o, {});
  o.max_shard_bytes = 1u << 30;
  write_random_checkpoint(small_config("2b"), o, {});
  EXPECT_EQ(names_in(o.folder), kFiles);
  const std::string first = bytes_of(o.folder / "model.safetensors");
  o.seed = 6;
  write_random_checkpoint(small_config("2b"), o, {});
  const std::string second = bytes_of(o.folder / "model.safetensors");
  EXPECT_EQ(first.size(), second.size());
  EXPECT_NE(first, second);
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>({"model"}));
}

TEST(RandomCheckpoint, LeavesOtherPeoplesFoldersAlone) {
  const TempFolder folder;
  const auto write_to = [&](const char* name) {
    write_random_checkpoint(small_config("2b"), options_for(folder.path() / name), {});
  };
  folder.write("used/notes.txt", "mine");
  EXPECT_ERROR(write_to("used"), "kUsage", "used holds files", "--out");
  folder.write("stranger/config.json", "{}");
  EXPECT_ERROR(write_to("stranger"), "kUsage", "stranger holds files");
  folder.write("file", "mine");
  EXPECT_ERROR(write_to("file"), "kUsage", "file is not a folder");
  folder.write("a.partial/notes.txt", "mine");
  EXPECT_ERROR(write_to("a"), "kUsage", "a.partial holds files");
  EXPECT_EQ(bytes_of(folder.path() / "used/notes.txt"), "mine");
  EXPECT_EQ(bytes_of(folder.path() / "stranger/config.json"), "{}");
  EXPECT_EQ(bytes_of(folder.path() / "a.partial/notes.txt"), "mine");
  EXPECT_FALSE(fs::exists(folder.path() / "a"));
}

TEST(RandomCheckpoint, APartIsNotACheckpoint) {
  const TempFolder folder;
  RandomCheckpoint o = options_for(folder.path() / "model");
  const auto stop = [&](uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
    EXPECT_FALSE(fs::exists(o.folder));
    throw Error(ErrorKind::kCancelled, "stopped");
  };
  EXPECT_ERROR(write_random_checkpoint(small_config("2b"), o, stop), "kCancelled: stopped");
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>());

  folder.write("model.partial/random_checkpoint.json", "{}");  // of a run that was killed
  folder.write("model.partial/model.safetensors", "xx");
  write_random_checkpoint(small_config("2b"), o, {});
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>({"model"}));
  EXPECT_EQ(names_in(o.folder), kFiles);
}

TEST(RandomCheckpoint, RefusesOptions) {
  const TempFolder folder;
  RandomCheckpoint o = options_for(folder.path() / "model");
  o.threads = -1;
  EXPECT_ERROR(write_random_checkpoint(small_config("2b"), o, {}), "kUsage", "--threads -1");
  EXPECT_ERROR(write_random_checkpoint(small_config("2b"), options_for(""), {}), "kUsage", "--out is empty");
}

TEST(RandomCheckpoint, SaysWhatDoesNotFitOrCannotBeWritten) {
  RandomCheckpoint o = options_for("/proc/vireo/model");
  EXPECT_ERROR(write_random_checkpoint(small_config("2b"), o, {}), "/proc");
  const TempFolder folder;
  o = options_for(folder.path() / "new/model");
  o.size = "235b-a22b";
  if (fs::space(folder.path()).available > 471'340'045'792) GTEST_SKIP() << "this disk holds even the largest size";
  EXPECT_ERROR(write_random_checkpoint(o), "kCapacity", "471.36 GB", (folder.path() / "new/model").string(), "--out");
  EXPECT_FALSE(fs::exists(folder.path() / "new"));
}

}  // namespace
}  // namespace vireo
