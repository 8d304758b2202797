// The model against stored outputs of Hugging Face transformers: the reference backend tensor by tensor at 1e-5, the CPU
// backend by the logits' direction and by greedy tokens.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"
#include "golden_cases.h"
#include "ops/reference.h"

namespace vireo::parity {
namespace {

// --- reference backend ---

class ReferenceParity : public testing::TestWithParam<Case> {};

TEST_P(ReferenceParity, EveryTensorAndEveryToken) {
  const auto& [set, name] = GetParam();
  const Golden golden(set, name);
  Rig rig(set, make_reference_backend(), kMaxRows);
  const size_t vocab = static_cast<size_t>(rig.config().text.vocab_size);
  size_t compared = 0;
  std::map<std::string, std::vector<float>> seen;
  const Probe probe = [&](const std::string& tensor, Tensor t) {
    const auto values = rig.read(t);
    auto& all = seen[tensor];
    all.insert(all.end(), values.begin(), values.end());
  };
  const Rig::Prompt prompt = rig.prepare(golden, &probe);

  const auto positions = golden.ints("position_ids");
  const size_t n = prompt.ids.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t a = 0; a < 3; ++a) ASSERT_EQ(prompt.positions[i][a], positions[a * n + i]) << "token " << i;
  }
  for (const Json& c : read_index(set)) {
    if (c["name"] == name) {
      ASSERT_EQ(prompt.next_position - static_cast<int64_t>(n), c["rope_delta"].get<int64_t>());
    }
  }

  rig.decoder().set_probe(&probe);
  rig.extend(prompt, 0, static_cast<int64_t>(n), true);
  rig.decoder().set_probe(nullptr);
  std::vector<float> row = seen["logits"];
  row.erase(row.begin(), row.end() - static_cast<int64_t>(vocab));
  seen["last_logits"] = row;

  // Greedy decoding with the KV cache, one token at a time; the input token is our own choice of the step before.
  const auto generated = golden.ints("ref.generated");
  std::vector<float> decode_logits;
  int64_t index = static_cast<int64_t>(n);
  for (const int64_t expected : generated) {
    decode_logits.insert(decode_logits.end(), row.begin(), row.end());
    const int32_t token = argmax(row.data(), vocab);
    ASSERT_EQ(token, expected) << "generated token " << index - static_cast<int64_t>(n);
    rig.decode(prompt, token, index++);
    row = rig.read(rig.runner().logits());
    ASSERT_EQ(rig.runner().sampled()[0], argmax(row.data(), vocab));
  }
  const size_t stored = golden.floats("ref.decode_logits").size();
  decode_logits.insert(decode_logits.end(), row.begin(), row.end());
  decode_logits.resize(stored);
  seen["decode_logits"] = decode_logits;

  for (const auto& [tensor, values] : golden.tensors) {
    if (tensor.rfind("ref.", 0) != 0 || tensor == "ref.generated" || tensor == "ref.margin") continue;
    const std::string key = tensor.substr(4);
    ASSERT_TRUE(seen.count(key)) << key << " is not computed";
    EXPECT_LT(relative_error(seen[key], golden.floats(tensor)), 1e-5) << key;
    ++compared;
  }
  EXPECT_GE(compared, 3u);
}

INSTANTIATE_TEST_SUITE_P(Goldens, ReferenceParity, testing::ValuesIn(cases({"tiny", "random_dense", "random_moe"})),
                         case_name);

// --- CPU backend, under every instruction set that this machine has ---

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const cpu::Kernels* k : cpu::usable_kernels()) names.push_back(k->name);
  return names;
}

class CpuParity : public testing::TestWithParam<Case> {};

TEST_P(CpuParity, LogitsPointTheSameWay) {
  const auto& [set, name] = GetParam();
  const Golden golden(set, name);
  for (const std::string& isa : isa_names()) {
    SCOPED_TRACE(isa);
    Rig rig(set, make_cpu_backend({.threads = 2, .isa = isa}), kMaxRows);
    expect_same_direction(rig, golden, name + " " + isa);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, CpuParity, testing::ValuesIn(cases({"tiny", "random_dense"})), case_name);

// --- chunks ---

struct ChunkCase {
  std::string backend, set, name;
};

void PrintTo(const ChunkCase& c, std::ostream* out) {
  *out << c.backend << ' ' << c.set << ' ' << c.name;
}

class Chunks : public testing::TestWithParam<ChunkCase> {};

std::unique_ptr<Backend> make_backend(const std::string& name) {
  return name == "reference" ? make_reference_backend() : make_cpu_backend({.threads = 2});
}

// Every bit of the cache and of the last logits is the same whatever the chunk size; the pictures cross the chunks.
TEST_P(Chunks, SameCacheAndLogitsAtAnyChunkSize) {
  const auto& [backend, set, name] = GetParam();
  const Golden golden(set, name);
  std::vector<std::vector<float>> reference_rows;
  std::vector<float> reference_logits;
  for (const int64_t chunk : {int64_t{1} << 20, int64_t{1}, int64_t{7}, int64_t{64}}) {
    Rig rig(set, make_backend(backend), kMaxRows);
    const Rig::Prompt prompt = rig.prepare(golden, nullptr);
    const int64_t n = static_cast<int64_t>(prompt.ids.size());
    rig.extend_in_chunks(prompt, chunk);
    const auto logits = rig.read(rig.runner().logits());
    const AttentionShape& shape = rig.decoder().shape();
    const size_t width = static_cast<size_t>(shape.kv_heads * shape.head_dim);
    std::vector<std::vector<float>> rows;
    for (size_t layer = 0; layer < static_cast<size_t>(rig.config().text.num_layers); ++layer) {
      for (int64_t slot = 0; slot < n; ++slot) {
        rows.emplace_back(2 * width);
        rig.backend().read_kv(rig.decoder().cache(layer), shape, slot, rows.back().data(), rows.back().data() + width);
      }
    }
    if (reference_rows.empty()) {
      reference_rows = rows;
      reference_logits = logits;
    }
    EXPECT_EQ(rows, reference_rows) << "chunks of " << chunk;
    EXPECT_EQ(logits, reference_logits) << "chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Chunks,
                         testing::Values(ChunkCase{"reference", "tiny", "multi_image_160x128_6"},
                                         ChunkCase{"cpu", "tiny", "multi_image_160x128_6"},
                                         ChunkCase{"cpu", "tiny", "video_128x128_7"},
                                         ChunkCase{"cpu", "random_dense", "video_96x96_24"},
                                         ChunkCase{"reference", "random_moe", "multi_image_96x128_23"},
                                         ChunkCase{"cpu", "random_moe", "multi_image_96x128_23"}),
                         [](const auto& info) {
                           return info.param.backend + "_" + info.param.set + "_" + info.param.name;
                         });

}  // namespace
}  // namespace vireo::parity
