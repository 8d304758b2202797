// The model on the CUDA backend: against stored outputs of Hugging Face transformers, by either runner; the recorded decode step
// against the same step walked op by op, to the last bit; chunks of a prompt against the whole. Skipped where there is no device.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/cosine.h"
#include "cuda/cuda_backend.h"
#include "cuda_test.h"
#include "golden_cases.h"
#include "ops/reference.h"

namespace vireo::parity {
namespace {

using testing_cuda::make_backend;

// --- stored outputs ---

class CudaParity : public testing_cuda::OnDevice<testing::TestWithParam<Case>> {};

TEST_P(CudaParity, LogitsPointTheSameWay) {
  const auto& [set, name] = GetParam();
  const Golden golden(set, name);
  for (const auto& [runner, make_runner] :
       {std::pair<std::string, RunnerFactory>{"eager", make_eager_runner}, {"graph", make_graph_runner}}) {
    SCOPED_TRACE(runner);
    Rig rig(set, make_backend(), kMaxRows, make_runner);
    expect_same_direction(rig, golden, name + " " + runner);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, CudaParity, testing::ValuesIn(cases({"tiny", "random_dense", "random_moe"})),
                         case_name);

// --- recorded steps ---

constexpr int kSteps = 20;

// What a decode step leaves, by row.
struct Result {
  std::vector<int32_t> ids;
  std::vector<float> logits;
  // Bits of the first `rows` rows.
  bool starts_like(const Result& other, size_t rows) const {
    const size_t vocab = logits.size() / ids.size(), other_vocab = other.logits.size() / other.ids.size();
    return vocab == other_vocab &&
           std::equal(ids.begin(), ids.begin() + static_cast<int64_t>(rows), other.ids.begin()) &&
           std::memcmp(logits.data(), other.logits.data(), rows * vocab * sizeof(float)) == 0;
  }
};

// The first `n` tokens of a prompt as a prompt.
Rig::Prompt head_of(const Rig::Prompt& prompt, int64_t n) {
  Rig::Prompt head = prompt;
  head.ids.resize(static_cast<size_t>(n));
  head.positions.resize(static_cast<size_t>(n));
  std::erase_if(head.visual_rows, [&](int32_t row) { return row >= n; });
  head.next_position = 0;
  for (const Position& p : head.positions)
    head.next_position = std::max({head.next_position, p[0] + 1, p[1] + 1, p[2] + 1});
  return head;
}

void poison(Rig& rig, Tensor logits) {
  const std::vector<float> nan(static_cast<size_t>(logits.size()), std::numeric_limits<float>::quiet_NaN());
  CHECK(logits.dtype == DType::kF32);
  rig.backend().upload(nan.data(), logits);
}

// kSteps decode steps, prompt i in sequence i and tokens[i] its first input.
std::vector<Result> decode(Rig& rig, const std::vector<Rig::Prompt>& prompts, const std::vector<int32_t>& tokens,
                           bool poisoned = false) {
  std::vector<Rig::Seat> seats;
  for (size_t i = 0; i < tokens.size(); ++i) {
    seats.push_back({prompts[i], tokens[i], static_cast<int64_t>(prompts[i].ids.size())});
  }
  rig.seat(seats);
  std::vector<Result> results;
  for (int step = 0; step < kSteps; ++step) {
    if (poisoned) poison(rig, rig.runner().logits());
    rig.runner().decode();
    const auto ids = rig.runner().sampled();
    results.push_back({{ids.begin(), ids.end()}, rig.read(rig.runner().logits())});
  }
  return results;
}

void expect_same(const std::vector<Result>& got, const std::vector<Result>& want, size_t rows, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t step = 0; step < got.size(); ++step) {
    ASSERT_EQ(got[step].ids.size(), rows);
    EXPECT_TRUE(std::ranges::all_of(got[step].ids, [](int32_t id) { return id >= 0; })) << what << ", step " << step;
    EXPECT_TRUE(got[step].starts_like(want[step], rows)) << what << ", step " << step;
  }
}

class CudaGraph : public testing_cuda::OnDevice<testing::TestWithParam<Case>> {};

TEST_P(CudaGraph, SameBitsAsTheEagerRunner) {
  const auto& [set, name] = GetParam();
  const Golden golden(set, name);
  Rig eager(set, make_backend(), kMaxRows), graph(set, make_backend(), kMaxRows, make_graph_runner);
  const Rig::Prompt eager_prompt = eager.prepare(golden, nullptr), graph_prompt = graph.prepare(golden, nullptr);
  const int64_t n = static_cast<int64_t>(eager_prompt.ids.size());
  const size_t vocab = static_cast<size_t>(eager.config().text.vocab_size);
  for (const int64_t start : {int64_t{1}, int64_t{63}, int64_t{64}, n}) {
    if (start > n) continue;
    SCOPED_TRACE(start);
    const std::vector<Rig::Prompt> eager_head = {head_of(eager_prompt, start)},
                                   graph_head = {head_of(graph_prompt, start)};
    eager.extend(eager_head[0], 0, start, false);
    graph.extend(graph_head[0], 0, start, false);
    const std::vector<float> last = eager.read(eager.runner().logits());
    ASSERT_EQ(graph.read(graph.runner().logits()), last);
    const int32_t token = argmax(last.data(), vocab), other = (token + 1) % static_cast<int32_t>(vocab);
    const auto want = decode(eager, eager_head, {token});
    expect_same(decode(graph, graph_head, {token}), want, 1, "recorded");
    // Another continuation leaves its traces in the cache and in every buffer.
    decode(graph, graph_head, {other});
    expect_same(decode(graph, graph_head, {token}, true), want, 1, "replayed over poison");

    graph.seat({{graph_head[0], token, start}});
    graph.runner().run_ahead(4);
    for (size_t step = 0; step < want.size(); ++step) {
      graph.runner().decode();
      const auto ids = graph.runner().sampled();
      EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.end()), want[step].ids) << "ahead, step " << step;
    }
  }
}

// Eight sequences that have come to different lengths, and the first of them on their own.
void expect_same_for_any_number_of_sequences(const Case& c, const TierPlan& tiers, KvMode kv_mode) {
  constexpr int64_t kSequences = 8;
  const auto& [set, name] = c;
  const Golden golden(set, name);
  Rig eager(set, make_backend(), kMaxRows, make_eager_runner, kSequences, tiers, kv_mode);
  Rig graph(set, make_backend(), kMaxRows, make_graph_runner, kSequences, tiers, kv_mode);
  const auto fill = [&](Rig& rig, std::vector<int32_t>& tokens) {
    const Rig::Prompt prompt = rig.prepare(golden, nullptr);
    const int64_t n = static_cast<int64_t>(prompt.ids.size());
    std::vector<Rig::Prompt> heads;
    for (int32_t s = 0; s < kSequences; ++s) {
      heads.push_back(head_of(prompt, std::max<int64_t>(1, n - 9 * s)));
      rig.extend(heads.back(), 0, static_cast<int64_t>(heads.back().ids.size()), false, s);
      tokens.push_back(rig.runner().sampled()[0]);
    }
    return heads;
  };
  std::vector<int32_t> tokens, graph_tokens;
  const auto eager_heads = fill(eager, tokens), graph_heads = fill(graph, graph_tokens);
  ASSERT_EQ(graph_tokens, tokens);
  const auto want = decode(eager, eager_heads, tokens);
  for (const size_t rows : {1, 2, 3, 5, 8}) {
    SCOPED_TRACE(rows);
    const std::vector<int32_t> first(tokens.begin(), tokens.begin() + static_cast<int64_t>(rows));
    expect_same(decode(eager, eager_heads, first), want, rows, "eager");
    expect_same(decode(graph, graph_heads, first), want, rows, "recorded");
    expect_same(decode(graph, graph_heads, first, true), want, rows, "replayed over poison");
  }
}

TEST_P(CudaGraph, SameBitsForAnyNumberOfSequences) {
  expect_same_for_any_number_of_sequences(GetParam(), {}, KvMode::kBf16);
}

TEST_P(CudaGraph, SameBitsWithAnInt8Cache) {
  expect_same_for_any_number_of_sequences(GetParam(), {}, KvMode::kInt8);
  expect_same_for_any_number_of_sequences(GetParam(), {Tier::kInt4, {}}, KvMode::kInt8);
}

TEST_P(CudaGraph, SameBitsInATier) {
  const TierPlan mixed(Tier::kW4, {{"lm_head", Tier::kInt8}, {"L0.o_proj", Tier::kBf16}, {"mlp_down", Tier::kInt4}});
  for (const auto& [name, tiers] : {std::pair<std::string, TierPlan>{"int8", {Tier::kInt8, {}}},
                                    {"w8", {Tier::kW8, {}}},
                                    {"int4", {Tier::kInt4, {}}},
                                    {"w4", {Tier::kW4, {}}},
                                    {"nvfp4", {Tier::kNvfp4, {}}},
                                    {"mixed", mixed}}) {
    SCOPED_TRACE(name);
    expect_same_for_any_number_of_sequences(GetParam(), tiers, KvMode::kBf16);
  }
}

// Prompts whose sizes come back are replayed; of more kinds than are kept the oldest are recorded anew.
TEST_P(CudaGraph, SameBitsOfARecordedPrefill) {
  constexpr int kKept = 3;
  const auto& [set, name] = GetParam();
  const Golden golden(set, name);
  Rig eager(set, make_backend(), kMaxRows),
      graph(set, make_backend(), kMaxRows, [](Backend& b, Forward f, RunnerShape s) {
        s.recorded_extends = kKept;
        return make_graph_runner(b, std::move(f), s);
      });
  const Rig::Prompt eager_prompt = eager.prepare(golden, nullptr), graph_prompt = graph.prepare(golden, nullptr);
  const int64_t n = static_cast<int64_t>(eager_prompt.ids.size());
  for (const int64_t chunk : {n, int64_t{5}, n, int64_t{9}, int64_t{5}, n, n}) {
    eager.extend_in_chunks(eager_prompt, chunk);
    graph.extend_in_chunks(graph_prompt, chunk);
    EXPECT_EQ(graph.read(graph.runner().logits()), eager.read(eager.runner().logits())) << "chunks of " << chunk;
    EXPECT_TRUE(std::ranges::equal(graph.runner().sampled(), eager.runner().sampled())) << "chunks of " << chunk;
    EXPECT_LE(graph.runner().recordings().captured, kKept);
  }
}

// --- an int8 cache ---

// Decode rows against the reference's with such a cache, which are not those without.
TEST_P(CudaGraph, AnInt8CacheIsTheReferences) {
  const auto& [set, name] = GetParam();
  const Golden golden(set, name);
  Rig reference(set, make_reference_backend(), kMaxRows, make_eager_runner, 1, {}, KvMode::kInt8);
  Rig coded(set, make_backend(), kMaxRows, make_graph_runner, 1, {}, KvMode::kInt8),
      plain(set, make_backend(), kMaxRows, make_graph_runner);
  const auto rows_of = [&](Rig& rig) {
    const Rig::Prompt prompt = rig.prepare(golden, nullptr);
    rig.extend_in_chunks(prompt, kMaxRows);
    std::vector<std::vector<float>> rows = {rig.read(rig.runner().logits())};
    for (int step = 0; step < 8; ++step) {
      rig.decode(prompt, 5 + step, static_cast<int64_t>(prompt.ids.size()) + step);
      rows.push_back(rig.read(rig.runner().logits()));
    }
    return rows;
  };
  const auto want = rows_of(reference), got = rows_of(coded), others = rows_of(plain);
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i].size(), want[i].size());
    EXPECT_GT(cosine(got[i], want[i]), 0.9995) << "row " << i;
    EXPECT_NE(got[i], others[i]) << "row " << i;
  }
}

// --- chunks ---

class CudaChunks : public testing_cuda::OnDevice<testing::TestWithParam<Case>> {};

// Few rows and many take different kernels, so only the direction is the same.
TEST_P(CudaChunks, SameDirectionAtAnyChunkSize) {
  const auto& [set, name] = GetParam();
  const Golden golden(set, name);
  Rig rig(set, make_backend(), kMaxRows, make_graph_runner);
  const Rig::Prompt prompt = rig.prepare(golden, nullptr);
  const auto last_logits = [&](int64_t chunk) {
    rig.extend_in_chunks(prompt, chunk);
    return rig.read(rig.runner().logits());
  };
  const auto whole = last_logits(kMaxRows);
  for (const int64_t chunk : {1, 7, 64}) {
    const auto logits = last_logits(chunk);
    ASSERT_EQ(logits.size(), whole.size());
    EXPECT_GT(cosine(logits, whole), 0.9999) << "chunks of " << chunk;
  }
}

const auto kMixed =
    testing::Values(Case{"tiny", "multi_image_160x128_6"}, Case{"tiny", "video_128x128_7"},
                    Case{"random_dense", "video_96x96_24"}, Case{"random_moe", "multi_image_96x128_23"});

// Generations of random lengths: one recording serves them all, and nothing is taken of the device's memory.
class CudaRecording : public testing_cuda::OnDevice<testing::Test> {};

TEST_F(CudaRecording, ServesEveryLengthWithoutMoreMemory) {
  const Golden golden("tiny", "multi_image_160x128_6");
  Rig rig("tiny", make_backend(), kMaxRows, make_graph_runner);
  const Rig::Prompt prompt = rig.prepare(golden, nullptr);
  const int64_t n = static_cast<int64_t>(prompt.ids.size());
  std::mt19937 random(7);
  const auto generate = [&] {
    const int64_t start = 1 + static_cast<int64_t>(random() % static_cast<uint32_t>(n));
    const Rig::Prompt head = head_of(prompt, start);
    rig.extend(head, 0, start, false);
    rig.seat({{head, 5, start}});
    for (uint32_t step = 0; step < 1 + random() % 5; ++step) rig.runner().decode();
    ASSERT_GE(rig.runner().sampled()[0], 0);
  };
  for (int i = 0; i < 20; ++i) generate();
  const auto before = rig.backend().available_memory();
  for (int i = 0; i < 1000; ++i) generate();
  EXPECT_EQ(rig.backend().available_memory(), before);
  EXPECT_EQ(rig.runner().recordings().captured, 1);
}

INSTANTIATE_TEST_SUITE_P(Goldens, CudaGraph, kMixed, case_name);
INSTANTIATE_TEST_SUITE_P(Goldens, CudaChunks, kMixed, case_name);

}  // namespace
}  // namespace vireo::parity
