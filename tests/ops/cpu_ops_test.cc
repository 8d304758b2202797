// The CPU backend, under every instruction set of this machine, against the reference backend: every case of the op table on
// fresh random inputs, fused ops against their default bodies, the same bits whatever the number of threads or rows.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <set>

#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"
#include "op_bench.h"
#include "op_cases.h"
#include "ops/reference.h"

namespace vireo::testing_ops {
namespace {

struct Param {
  std::string isa, op;
};

void PrintTo(const Param& p, std::ostream* out) {
  *out << p.isa << ' ' << p.op;
}

std::vector<Param> params() {
  std::vector<Param> out;
  for (const cpu::Kernels* k : cpu::usable_kernels()) {
    std::set<std::string> ops;
    for (const OpCase& c : op_cases()) {
      if (ops.insert(c.op).second) out.push_back({k->name, c.op});
    }
  }
  return out;
}

class CpuOps : public testing::TestWithParam<Param> {
 protected:
  template <typename Body>
  void for_cases(Body body) const {
    for (const OpCase& c : op_cases()) {
      if (c.op != GetParam().op) continue;
      SCOPED_TRACE(c.name());
      body(c);
    }
  }

  std::unique_ptr<Backend> cpu(int threads) const {
    return make_cpu_backend({.threads = threads, .isa = GetParam().isa});
  }

  // What is rounded to bf16 on the way differs by as much as that: the rows of products under some instruction sets, keys and
  // values of attention under all.
  double tolerance(const OpCase& c) const {
    const bool rounds = cpu::find_kernels(GetParam().isa).rounds_to_bf16 || c.op == "attend_spans";
    return rounds && c.tolerance > 0 ? std::max(c.tolerance, 8e-3) : c.tolerance;
  }
};

TEST_P(CpuOps, MatchTheReference) {
  const uint32_t seed = std::random_device{}();
  const auto reference = make_reference_backend();
  const auto backend = cpu(2);
  // The KV cache of the CPU backend is BF16: what was stored there differs by its rounding.
  const double kv = GetParam().op == "norm_rope_attend" ? 8e-3 : 0;
  for_cases([&](const OpCase& c) {
    const auto want = c.run(*reference, seed, Body::kOwn), got = c.run(*backend, seed, Body::kOwn);
    EXPECT_LE(relative_error(got, want), std::max(tolerance(c), kv)) << "seed " << seed;
  });
}

TEST_P(CpuOps, SameBitsForAnyNumberOfThreads) {
  const auto one = cpu(1), two = cpu(2), three = cpu(3), seven = cpu(7);
  for_cases([&](const OpCase& c) {
    const auto want = c.run(*one, 1, Body::kOwn);
    for (const auto* many : {&two, &three, &seven})
      EXPECT_EQ(c.run(**many, 1, Body::kOwn), want) << (*many)->description();
  });
}

TEST_P(CpuOps, FusedLikeTheDefaultBody) {
  const auto backend = cpu(2);
  for_cases([&](const OpCase& c) {
    if (!c.fused) return;
    EXPECT_LE(relative_error(c.run(*backend, 3, Body::kOwn), c.run(*backend, 3, Body::kDefault)), tolerance(c));
  });
}

INSTANTIATE_TEST_SUITE_P(Table, CpuOps, testing::ValuesIn(params()),
                         [](const auto& info) { return info.param.isa + "_" + info.param.op; });

// Row r of a product has the same bits whether 1 or 8 rows are multiplied.
TEST(CpuLinear, SameBitsPerRowFrom1To8Rows) {
  for (const cpu::Kernels* k : cpu::usable_kernels()) {
    const auto backend = make_cpu_backend({.threads = 2, .isa = k->name});
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    constexpr int64_t kIn = 214, kOut = 77;
    std::vector<bf16> weights(kOut * kIn);
    for (bf16& w : weights) w = to_bf16(normal(random));
    const auto linear = backend->place({{"w", DType::kBF16, {kOut, kIn}, weights.data()}}, {}, {});
    const OwnedTensor x = backend->allocate(8, kIn, DType::kF32), y = backend->allocate(8, kOut, DType::kF32);
    for (int64_t i = 0; i < x.view.size(); ++i) x.view.row<float>(0)[i] = normal(random);
    std::vector<std::vector<float>> single;
    for (int64_t r = 0; r < 8; ++r) {
      backend->ops().linear(*linear, x.view.slice_rows(r, 1), y.view.slice_rows(r, 1));
      single.emplace_back(y.view.row<float>(r), y.view.row<float>(r) + kOut);
    }
    for (int64_t rows = 2; rows <= 8; ++rows) {
      backend->ops().linear(*linear, x.view.slice_rows(0, rows), y.view.slice_rows(0, rows));
      for (int64_t r = 0; r < rows; ++r) {
        EXPECT_EQ(std::vector<float>(y.view.row<float>(r), y.view.row<float>(r) + kOut), single[static_cast<size_t>(r)])
            << k->name << " row " << r << " of " << rows;
      }
    }
  }
}

// --- weight tiers ---

struct TierParam {
  std::string isa;
  Tier tier;
};

void PrintTo(const TierParam& p, std::ostream* out) {
  *out << p.isa << ' ' << tier_name(p.tier);
}

std::vector<TierParam> tier_params() {
  std::vector<TierParam> out;
  for (const cpu::Kernels* k : cpu::usable_kernels()) {
    for (Tier tier : {Tier::kInt8, Tier::kW8, Tier::kInt4, Tier::kW4, Tier::kNvfp4}) out.push_back({k->name, tier});
  }
  return out;
}

class CpuTiers : public testing::TestWithParam<TierParam> {
 protected:
  struct Shape {
    int64_t rows, out, in;
    std::string projection;
  };

  std::unique_ptr<Backend> cpu(int threads) const {
    return make_cpu_backend({.threads = threads, .isa = GetParam().isa});
  }

  // Rows times a matrix in the tier, as a decode step does it; outputs are poisoned before.
  static std::vector<float> decode(Backend& backend, const Shape& s, Tier tier, uint32_t seed, bool decodes = true) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<bf16> weights(static_cast<size_t>(s.out * s.in));
    for (bf16& w : weights) w = to_bf16(normal(random));
    weights[0] = to_bf16(40.0f);  // an outlier
    const auto w = backend.place({{"w", DType::kBF16, {s.out, s.in}, weights.data()}}, {}, {0, s.projection, tier});
    const OwnedTensor x = backend.allocate(s.rows, s.in, DType::kF32), y = backend.allocate(s.rows, s.out, DType::kF32);
    for (int64_t i = 0; i < x.view.size(); ++i) x.view.row<float>(0)[i] = normal(random);
    std::fill_n(y.view.row<float>(0), y.view.size(), NAN);
    backend.ops().begin_step(decodes);
    backend.ops().linear(*w, x.view, y.view);
    backend.ops().begin_step(false);
    return {y.view.row<float>(0), y.view.row<float>(0) + y.view.size()};
  }

  // Rows of numbers times a matrix.
  static std::vector<float> product(Backend& backend, const Linear& w, int64_t rows, bool decodes) {
    const OwnedTensor x = backend.allocate(rows, w.in, DType::kF32), y = backend.allocate(rows, w.out, DType::kF32);
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < x.view.size(); ++i) x.view.row<float>(0)[i] = normal(random);
    backend.ops().begin_step(decodes);
    backend.ops().linear(w, x.view, y.view);
    backend.ops().begin_step(false);
    return {y.view.row<float>(0), y.view.row<float>(0) + y.view.size()};
  }

  const std::vector<Shape> shapes_ = {{1, 96, 128, "o_proj"},  {1, 33, 1, "o_proj"},      {3, 33, 15, "mlp_down"},
                                      {8, 1, 16, "o_proj"},    {5, 65, 17, "qkv_proj"},   {8, 257, 72, "lm_head"},
                                      {7, 31, 214, "o_proj"},  {1, 128, 2048, "gate_up"}, {4, 64, 6144, "mlp_down"},
                                      {6, 96, 1000, "gate_up"}};
};

TEST_P(CpuTiers, MatchTheReference) {
  const uint32_t seed = std::random_device{}();
  const auto reference = make_reference_backend();
  const auto backend = cpu(2);
  for (const Shape& s : shapes_) {
    const auto want = decode(*reference, s, GetParam().tier, seed), got = decode(*backend, s, GetParam().tier, seed);
    // Integer tiers read rows as integers of 16 bits.
    EXPECT_LE(relative_error(got, want), GetParam().tier == Tier::kW8 ? 3e-6 : 6e-5)
        << s.rows << " x " << s.out << " x " << s.in << ", seed " << seed;
  }
}

TEST_P(CpuTiers, SameBitsForAnyNumberOfThreadsAndRows) {
  const auto one = cpu(1), three = cpu(3);
  for (const Shape& s : shapes_) {
    const auto want = decode(*one, s, GetParam().tier, 3);
    EXPECT_EQ(decode(*three, s, GetParam().tier, 3), want) << "threads";
    // The weights come first from the random numbers, so that fewer rows are the same rows.
    for (int64_t rows = 1; rows < s.rows; ++rows) {
      Shape fewer = s;
      fewer.rows = rows;
      const std::vector<float> head(want.begin(), want.begin() + rows * s.out);
      EXPECT_EQ(decode(*one, fewer, GetParam().tier, 3), head) << rows << " of " << s.rows << " rows";
    }
  }
}

// Values of rows that no integer holds: nothing is converted out of range, and what is not finite is not finite after.
TEST_P(CpuTiers, RowsOfAnySize) {
  const auto backend = cpu(2), reference = make_reference_backend();
  constexpr int64_t kIn = 32, kOut = 16;
  const std::vector<bf16> weights(kIn * kOut, to_bf16(0.5f));
  const auto run = [&](Backend& b, float first, float others) {
    const auto w = b.place({{"w", DType::kBF16, {kOut, kIn}, weights.data()}}, {}, {0, "o_proj", GetParam().tier});
    const OwnedTensor x = b.allocate(1, kIn, DType::kF32), y = b.allocate(1, kOut, DType::kF32);
    std::fill_n(x.view.row<float>(0), kIn, others);
    x.view.row<float>(0)[0] = first;
    b.ops().begin_step(true);
    b.ops().linear(*w, x.view, y.view);
    b.ops().begin_step(false);
    return std::vector<float>(y.view.row<float>(0), y.view.row<float>(0) + kOut);
  };
  for (const auto& [first, others] :
       {std::pair{0.0f, 0.0f}, {1e-45f, 1e-40f}, {1e37f, 1.0f}, {-1e30f, 1e30f}, {1e-29f, -1e-29f}}) {
    const auto want = run(*reference, first, others), got = run(*backend, first, others);
    for (size_t o = 0; o < want.size(); ++o)
      EXPECT_NEAR(got[o], want[o], std::max(1e-30, std::fabs(want[o]) * 1e-4)) << first;
  }
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const float y : run(*backend, bad, 1.0f)) EXPECT_FALSE(std::isfinite(y));
  }
}

// Two parts as a checkpoint has them in a tier: decode steps read the bits that quantising now gives, and prefill what the codes stand for.
TEST_P(CpuTiers, CodesAreUsedAsTheyAre) {
  const Tier tier = GetParam().tier;
  for (const Shape& s : shapes_) {
    const int64_t first = s.out / 2;
    const CodedPart a(tier, first, s.in, 7), b(tier, s.out - first, s.in, 8);
    for (const bool is_reference : {true, false}) {
      const auto backend = is_reference ? make_reference_backend() : cpu(2);
      const auto coded =
          backend->place({a.tensor(nullptr), b.tensor(nullptr)}, {}, {0, s.projection, tier, {a.coded(), b.coded()}});
      const auto made = backend->place({a.tensor(a.rows.data()), b.tensor(b.rows.data())}, {}, {0, s.projection, tier});
      const auto rounded =
          backend->place({a.tensor(a.rounded.data()), b.tensor(b.rounded.data())}, {}, {0, s.projection});
      EXPECT_EQ(product(*backend, *coded, s.rows, true), product(*backend, *made, s.rows, true)) << s.in;
      EXPECT_EQ(product(*backend, *coded, s.rows, false), product(*backend, *rounded, s.rows, false)) << s.in;
      // With rows beside the codes prefill reads the rows.
      const auto both = backend->place({a.tensor(a.rows.data()), b.tensor(b.rows.data())}, {},
                                       {0, s.projection, tier, {a.coded(), b.coded()}});
      EXPECT_EQ(product(*backend, *both, s.rows, true), product(*backend, *made, s.rows, true)) << s.in;
      EXPECT_EQ(product(*backend, *both, s.rows, false), product(*backend, *made, s.rows, false)) << s.in;
    }
  }
}

TEST_P(CpuTiers, PrefillReadsCodesAlone) {
  const Tier tier = GetParam().tier;
  if (tier == Tier::kBf16) return;
  for (const Shape& s : shapes_) {
    const CodedPart part(tier, s.out, s.in, 7);
    for (const bool is_reference : {true, false}) {
      const auto backend = is_reference ? make_reference_backend() : cpu(2);
      const auto both = backend->place({part.tensor(part.rows.data())}, {}, {0, s.projection, tier});
      for (const bool has_rows : {true, false}) {
        Role role{0, s.projection, tier, {}, true};
        if (!has_rows) role.coded = {part.coded()};
        const auto alone = backend->place({part.tensor(has_rows ? part.rows.data() : nullptr)}, {}, role);
        for (const bool decodes : {true, false}) {
          EXPECT_EQ(product(*backend, *alone, s.rows, decodes), product(*backend, *both, s.rows, true)) << s.in;
        }
      }
    }
  }
}

TEST_P(CpuTiers, PrefillReadsBf16) {
  const auto backend = cpu(2);
  for (const Shape& s : shapes_) {
    const auto plain = decode(*backend, s, Tier::kBf16, 5);
    EXPECT_EQ(decode(*backend, s, GetParam().tier, 5, false), plain);
    EXPECT_EQ(decode(*backend, s, Tier::kBf16, 5, false), plain);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, CpuTiers, testing::ValuesIn(tier_params()), [](const auto& info) {
  return info.param.isa + "_" + std::string(tier_name(info.param.tier));
});

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

// The most memory this process has held, in bytes.
int64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) << 10;
  }
  return -1;
}

TEST(HostSteps, StoreAndSeeNothingBeyondTheLastPage) {
  for (const auto& backend : {make_reference_backend(), make_cpu_backend({.threads = 2})}) {
    const AttentionShape shape{1, 1, 16, 1};
    const OwnedKv cache = backend->allocate_kv(kPageTokens, shape, KvMode::kBf16);
    const OwnedTensor row = backend->allocate(1, 16, DType::kF32);
    StepMemory memory = backend->allocate_step(1, 1, 1);
    const Step& step = memory.step;
    backend->plan(
        {.ids = {3}, .positions = {{7, 7, 7}}, .sequences = {0}, .cache_indices = {kPageTokens - 2}, .wanted = {0}},
        memory);
    step.sampled.row<int32_t>(0)[0] = 5;
    const int32_t last = kPageTokens - 1;
    for (const int32_t slot : {last, -1, -1}) {
      backend->ops().advance(step);
      EXPECT_EQ(step.lengths.row<int32_t>(0)[0], kPageTokens);
      EXPECT_EQ(step.slots.row<int32_t>(0)[0], slot);
      std::fill_n(row.view.row<float>(0), 16, slot < 0 ? 2.0f : 1.0f);
      backend->ops().append_kv(row.view, row.view, step, shape, cache.view);
    }
    EXPECT_EQ(step.positions.row<int32_t>(0)[0], 10);
    std::vector<float> k(16), v(16);
    for (int32_t slot = 0; slot < kPageTokens; ++slot) {
      backend->read_kv(cache.view, shape, slot, k.data(), v.data());
      EXPECT_EQ(k, std::vector<float>(16, slot == last ? 1.0f : 0.0f)) << slot;
      EXPECT_EQ(v, k);
    }
  }
}

// A score matrix of 16384 x 16384 floats would be 1 GiB; attention may hold blocks only.
TEST(CpuAttention, MemoryDoesNotGrowWithTheSquare) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory would be counted";
  constexpr int64_t kTokens = 16384, kHeads = 2, kHeadDim = 16, kCols = kHeads * kHeadDim;
  const auto backend = make_cpu_backend({.threads = 2});
  const AttentionShape shape{kHeads, kHeads, kHeadDim, 0.25f};
  const OwnedTensor q = backend->allocate(kTokens, kCols, DType::kF32),
                    out = backend->allocate(kTokens, kCols, DType::kF32);
  std::fill_n(q.view.row<float>(0), q.view.size(), 0.5f);
  const OwnedKv cache = backend->allocate_kv(kTokens, shape, KvMode::kBf16);
  StepMemory memory = backend->allocate_step(kTokens, 1, kTokens / kPageTokens);
  HostStep step;
  for (int32_t i = 0; i < kTokens; ++i) {
    step.ids.push_back(0);
    step.positions.push_back({i, i, i});
    step.sequences.push_back(0);
    step.cache_indices.push_back(i);
  }
  backend->plan(step, memory);
  std::fill_n(out.view.row<float>(0), out.view.size(), 0.0f);
  const int64_t before = peak_memory();
  ASSERT_GT(before, 0);
  backend->ops().append_kv(q.view, q.view, memory.step, shape, cache.view);
  backend->ops().attend_cache(q.view, memory.step, cache.view, shape, out.view);
  EXPECT_NEAR(out.view.row<float>(kTokens - 1)[0], 0.5f, 1e-2);
  const int32_t bounds[] = {0, kTokens};
  backend->ops().attend_spans(q.view, q.view, q.view, {bounds, 1}, shape, out.view);
  EXPECT_NEAR(out.view.row<float>(0)[0], 0.5f, 1e-2);
  EXPECT_LT(peak_memory() - before, 32 << 20);
}

}  // namespace
}  // namespace vireo::testing_ops
