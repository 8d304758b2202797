// The CUDA backend against the reference backend: every case of the op table on fresh random inputs, fused ops against their
// default bodies, the same bits on every run and for 1 to 8 rows. Skipped where there is no device.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <set>

#include "cuda/cuda_context.h"
#include "cuda/kernels.h"
#include "cuda_test.h"
#include "op_bench.h"
#include "op_cases.h"
#include "ops/reference.h"
#include "vireo/error.h"

namespace vireo::testing_ops {
namespace {

// NaN is equal to itself here.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The largest difference of two elements, relative to what such an element is like.
double worst_element(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double squares = 0, worst = 0;
  for (const float v : b) squares += double{v} * v;
  const double usual = std::sqrt(squares / static_cast<double>(b.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(double{a[i]} - b[i]);
    if (!(difference <= INFINITY)) return INFINITY;
    if (difference > 0) worst = std::max(worst, difference / (usual + std::fabs(b[i])));
  }
  return worst;
}

uint32_t fresh_seed() {
  const uint32_t seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  return seed;
}

// How far a sum in float32 may be from one in double.
constexpr double kFloatTolerance = 2e-5;
// How much further than the norm of all differences one element may be off.
constexpr double kWorst = 5;

// How far what is rounded to bf16 on its way may be off: once or twice, but for a gate and its factor, each of a rounded row and
// rounded itself.
double bf16_tolerance(std::string_view op) {
  return op.ends_with("gate_up") ? 1.2e-2 : 5e-3;
}

double tolerance(const OpCase& c) {
  if (c.tolerance == 0) return 0;
  // For a prompt keys and values that codes stand for are rounded as well.
  const bool restored = c.kv == KvMode::kInt8 && c.shape.ends_with("chunk");
  const double rounded = bf16_tolerance(c.op) * (restored ? 2 : 1);
  return std::max(c.tolerance, c.residual ? kFloatTolerance : rounded);
}

class CudaOps : public testing_cuda::OnDevice<testing::TestWithParam<std::string>> {
 protected:
  template <typename Body>
  void for_cases(Body body) const {
    for (const OpCase& c : op_cases()) {
      if (c.op != GetParam()) continue;
      SCOPED_TRACE(c.name());
      body(c);
    }
  }
};

TEST_P(CudaOps, MatchTheReference) {
  const uint32_t seed = fresh_seed();
  const auto reference = make_reference_backend(), backend = testing_cuda::make_backend();
  for_cases([&](const OpCase& c) {
    const auto want = c.run(*reference, seed, Body::kOwn), got = c.run(*backend, seed, Body::kOwn);
    EXPECT_LE(relative_error(got, want), tolerance(c)) << "seed " << seed;
    EXPECT_LE(worst_element(got, want), kWorst * tolerance(c)) << "seed " << seed;
  });
}

TEST_P(CudaOps, FusedLikeTheDefaultBody) {
  const uint32_t seed = fresh_seed();
  const auto backend = testing_cuda::make_backend();
  for_cases([&](const OpCase& c) {
    if (!c.fused) return;
    const auto want = c.run(*backend, seed, Body::kDefault), got = c.run(*backend, seed, Body::kOwn);
    EXPECT_LE(relative_error(got, want), bf16_tolerance(c.op)) << "seed " << seed;
    EXPECT_LE(worst_element(got, want), kWorst * bf16_tolerance(c.op)) << "seed " << seed;
  });
}

// Two threads that race seldom do it twice in the same way.
TEST_P(CudaOps, SameBitsOnEveryRun) {
  const uint32_t seed = fresh_seed();
  const auto backend = testing_cuda::make_backend(), other = testing_cuda::make_backend();
  for_cases([&](const OpCase& c) {
    const auto first = c.run(*backend, seed, Body::kOwn);
    EXPECT_TRUE(same_bits(c.run(*backend, seed, Body::kOwn), first)) << "seed " << seed;
    EXPECT_TRUE(same_bits(c.run(*other, seed, Body::kOwn), first)) << "by another backend, seed " << seed;
  });
}

std::vector<std::string> op_names() {
  std::set<std::string> names;
  for (const OpCase& c : op_cases()) names.insert(c.op);
  return {names.begin(), names.end()};
}

INSTANTIATE_TEST_SUITE_P(Table, CudaOps, testing::ValuesIn(op_names()), [](const auto& info) { return info.param; });

// --- row r of a result has the same bits whether 1 or 8 rows are computed ---

constexpr int64_t kRows = 8;

// compute(first, count) computes rows [first, first + count) of `out`, from what `out` holds now.
template <typename Compute>
void expect_same_rows(Bench& b, const std::string& what, Tensor out, Compute compute) {
  const std::vector<float> before = b.read(out);
  std::vector<std::vector<float>> single;
  for (int64_t r = 0; r < kRows; ++r) {
    b.write(before, out);
    compute(r, int64_t{1});
    single.push_back(b.read(out.slice_rows(r, 1)));
  }
  for (int64_t rows = 2; rows <= kRows; ++rows) {
    b.write(before, out);
    compute(int64_t{0}, rows);
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = b.read(out.slice_rows(r, 1));
      EXPECT_TRUE(std::none_of(row.begin(), row.end(), [](float v) { return std::isnan(v); })) << what << " row " << r;
      EXPECT_TRUE(same_bits(row, single[static_cast<size_t>(r)])) << what << " row " << r << " of " << rows;
    }
  }
}

class CudaRows : public testing_cuda::OnDevice<> {};

class CudaTierRows : public testing_cuda::OnDevice<testing::TestWithParam<Tier>> {};

TEST_P(CudaTierRows, SameBitsFrom1To8OfAProduct) {
  const uint32_t seed = fresh_seed();
  const auto backend = testing_cuda::make_backend();
  Ops& ops = backend->ops();
  ops.begin_step(true);
  struct Size {
    int64_t in, out;
  };
  for (const Size s : {Size{214, 77}, {2048, 77}, {6144, 33}, {25600, 24}, {72, 5}, {7, 3}, {2048, 2048}}) {
    SCOPED_TRACE(std::to_string(s.out) + "x" + std::to_string(s.in) + ", seed " + std::to_string(seed));
    Bench b(*backend, seed);
    const auto w = b.linear({s.out}, s.in, true, {0, "o_proj", GetParam()}),
               gate_up = b.linear({s.out, s.out}, s.in, false, {0, "gate_up", GetParam()});
    const Norm norm = b.norm(s.in, false);
    const Tensor x = b.activations(kRows, s.in), residuals = b.residuals(kRows, s.in, 3), h = b.poisoned(kRows, s.in);
    const Tensor scratch = b.poisoned(kRows, 2 * s.out), sum = b.residuals(kRows, s.out);
    const auto part = [](Tensor t, int64_t first, int64_t count) { return t.slice_rows(first, count); };
    for (const Tensor& out : {b.poisoned(kRows, s.out), b.poisoned_residuals(kRows, s.out)}) {
      const std::string type = std::string(" to ") + name_of(out.dtype);
      expect_same_rows(b, "linear" + type, out,
                       [&](int64_t r, int64_t n) { ops.linear(*w, part(x, r, n), part(out, r, n)); });
      expect_same_rows(b, "norm_linear" + type, out, [&](int64_t r, int64_t n) {
        ops.norm_linear(norm, *w, part(residuals, r, n), part(h, r, n), part(out, r, n));
      });
    }
    expect_same_rows(b, "linear_add", sum, [&](int64_t r, int64_t n) {
      ops.linear_add(*w, part(x, r, n), part(scratch.slice_cols(0, s.out), r, n), part(sum, r, n));
    });
    const Tensor y = b.poisoned(kRows, s.out);
    expect_same_rows(b, "norm_gate_up", y, [&](int64_t r, int64_t n) {
      ops.norm_gate_up(norm, *gate_up, part(residuals, r, n), part(h, r, n), part(scratch, r, n), part(y, r, n));
    });
    for (const Gelu kind : {Gelu::kTanh, Gelu::kErf}) {
      expect_same_rows(b, kind == Gelu::kTanh ? "linear_gelu tanh" : "linear_gelu erf", y,
                       [&](int64_t r, int64_t n) { ops.linear_gelu(*w, part(x, r, n), kind, part(y, r, n)); });
    }
  }
}

// A row of x that is one in one place and zero elsewhere brings out one input's weights.
TEST_P(CudaTierRows, WeightsAreThoseOfTheTier) {
  const uint32_t seed = fresh_seed();
  const Tier tier = GetParam();
  if (tier == Tier::kBf16) return;
  const auto backend = testing_cuda::make_backend();
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  constexpr int64_t kOut = 77, kIn = 216;
  std::vector<bf16> weights(kOut * kIn);
  // Groups of very different sizes, one of zeros, one of almost nothing.
  for (size_t i = 0; i < weights.size(); ++i) {
    const float size = std::ldexp(1.0f, static_cast<int>(i / kTierGroup % 64) - 40);
    weights[i] = to_bf16(normal(random) * (i < kTierGroup ? 0.0f : i < 2 * kTierGroup ? 1e-12f : size));
  }
  const auto w = backend->place({{"w", DType::kBF16, {kOut, kIn}, weights.data()}}, {}, {0, "o_proj", tier});
  std::vector<float> want(kOut * kIn);
  const float tensor_scale = tensor_scale_of(tier, weights.data(), kOut * kIn);
  for (int64_t o = 0; o < kOut; ++o) {
    round_to_tier(tier, &weights[static_cast<size_t>(o * kIn)], kIn, &want[static_cast<size_t>(o * kIn)], tensor_scale);
  }
  const OwnedTensor x = backend->allocate(kRows, kIn, DType::kBF16), y = backend->allocate(kRows, kOut, DType::kF32);
  std::vector<float> got(kRows * kOut);
  for (int64_t first = 0; first < kIn; first += kRows) {
    std::vector<bf16> one(kRows * kIn);
    for (int64_t r = 0; r < kRows; ++r) one[static_cast<size_t>(r * kIn + first + r)] = to_bf16(1.0f);
    backend->upload(one.data(), x.view);
    backend->ops().begin_step(true);
    backend->ops().linear(*w, x.view, y.view);
    backend->download(y.view, got.data());
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t o = 0; o < kOut; ++o) {
        ASSERT_EQ(got[static_cast<size_t>(r * kOut + o)], want[static_cast<size_t>(o * kIn + first + r)])
            << "output " << o << ", input " << first + r;
      }
    }
  }
}

// As the CPU's test of the same name.
TEST_P(CudaTierRows, CodesAreUsedAsTheyAre) {
  const Tier tier = GetParam();
  if (tier == Tier::kBf16) return;
  const auto backend = testing_cuda::make_backend();
  const CodedPart a(tier, 40, 216, 7), b(tier, 40, 216, 8);
  const auto product = [&](const Linear& w, bool decodes) {
    Bench bench(*backend, 3);
    const Tensor x = bench.activations(2, w.in), y = bench.poisoned_residuals(2, w.out);
    backend->ops().begin_step(decodes);
    backend->ops().linear(w, x, y);
    backend->ops().begin_step(false);
    return bench.read(y);
  };
  for (const std::string projection : {"qkv_proj", "gate_up"}) {
    const auto coded =
        backend->place({a.tensor(nullptr), b.tensor(nullptr)}, {}, {0, projection, tier, {a.coded(), b.coded()}});
    const auto made = backend->place({a.tensor(a.rows.data()), b.tensor(b.rows.data())}, {}, {0, projection, tier});
    const auto rounded = backend->place({a.tensor(a.rounded.data()), b.tensor(b.rounded.data())}, {}, {0, projection});
    EXPECT_EQ(product(*coded, true), product(*made, true)) << projection;
    EXPECT_EQ(product(*coded, false), product(*rounded, false)) << projection;
  }
}

// Prefill with a matrix that has codes alone, also one that is restored in several parts, as with what its codes stand for.
TEST_P(CudaTierRows, CodesAloneAreRestored) {
  const Tier tier = GetParam();
  if (tier == Tier::kBf16) return;
  const auto backend = testing_cuda::make_backend();
  Ops& ops = backend->ops();
  struct Shape {
    const char* projection;
    int64_t out, in;
  };
  for (const Shape& s : {Shape{"o_proj", 40, 216},
                         {"qkv_proj", 90, 128},
                         {"lm_head", 32808, 1032},
                         {"gate_up", 96, 216},
                         {"gate_up", 32800, 1032}}) {
    const CodedPart part(tier, s.out, s.in, 7);
    const auto alone = backend->place({part.tensor(part.rows.data())}, {}, {0, s.projection, tier, {}, true});
    const auto rounded = backend->place({part.tensor(part.rounded.data())}, {}, {0, s.projection});
    const auto results = [&](const Linear& w, int64_t rows) {
      Bench b(*backend, 3);
      if (s.projection != std::string("gate_up")) {
        const Tensor x = b.activations(rows, s.in), y = b.poisoned(rows, s.out);
        ops.linear(w, x, y);
        return b.read(y);
      }
      const Tensor sum = b.residuals(rows, s.in), h = b.poisoned(rows, s.in);
      const Tensor scratch = b.poisoned(rows, s.out), act = b.poisoned(rows, s.out / 2);
      ops.norm_gate_up(b.norm(s.in, false), w, sum, h, scratch, act);
      return b.read(act);
    };
    // In parts the vendor's library may choose another kernel.
    const bool in_parts = s.out * s.in * 2 > cuda::kRestoredWeightBytes;
    const auto got = results(*alone, 33), want = results(*rounded, 33);
    EXPECT_TRUE(in_parts || same_bits(got, want)) << s.projection << s.out;
    EXPECT_LE(relative_error(got, want), 4e-3) << s.projection << s.out;
    // The kernels of few rows round differently.
    EXPECT_LE(relative_error(results(*alone, 3), results(*rounded, 3)), bf16_tolerance(s.projection))
        << s.projection << s.out;
  }
}

TEST_P(CudaTierRows, TooManyInputsAreRefused) {
  const Tier tier = GetParam();
  if (tier == Tier::kBf16) return;
  const auto backend = testing_cuda::make_backend();
  const std::vector<bf16> rows(200000 * 4, to_bf16(0.5f));
  const HostTensor w{"w", DType::kBF16, {4, 200000}, rows.data()};
  const std::vector<std::vector<HostTensor>> experts = {{w}};
  EXPECT_THROW(backend->place({w}, {}, {3, "mlp_down", tier}), Error);
  EXPECT_THROW(backend->place_experts(experts, ExpertLayout::kOutIn, {3, "mlp_down", tier}), Error);
}

// A weight that is not a number shows in its output, and in no other.
TEST_P(CudaTierRows, WhatIsNotFiniteShows) {
  const auto backend = testing_cuda::make_backend();
  constexpr int64_t kOut = 16, kIn = 144;
  std::vector<bf16> weights(kOut * kIn, to_bf16(0.5f));
  weights[5 * kIn + 130] = to_bf16(NAN);
  const auto w = backend->place({{"w", DType::kBF16, {kOut, kIn}, weights.data()}}, {}, {0, "o_proj", GetParam()});
  Bench b(*backend, 3);
  const Tensor x = b.activations(1, kIn), y = b.poisoned_residuals(1, kOut);
  backend->ops().begin_step(true);
  backend->ops().linear(*w, x, y);
  const std::vector<float> got = b.read(y);
  for (size_t o = 0; o < kOut; ++o) EXPECT_EQ(std::isnan(got[o]), o == 5) << o;
}

TEST_P(CudaTierRows, SameBitsFrom1To8OfExperts) {
  const uint32_t seed = fresh_seed();
  const auto backend = testing_cuda::make_backend();
  Bench b(*backend, seed);
  constexpr int32_t kExperts = 16;
  constexpr int64_t kIn = 264, kInner = 96, kChosen = 4, kWidth = 3 * kInner + kIn;
  std::vector<std::vector<HostTensor>> up, down;
  for (int32_t e = 0; e < kExperts; ++e) {
    up.push_back({b.weight({2 * kInner, kIn}, 0.06f)});
    down.push_back({b.weight({kIn, kInner}, 0.1f)});
  }
  const auto up_linear = backend->place_experts(up, ExpertLayout::kOutIn, {0, "gate_up", GetParam()});
  const auto down_linear = backend->place_experts(down, ExpertLayout::kOutIn, {0, "mlp_down", GetParam()});
  std::vector<int32_t> chosen;
  for (int64_t r = 0; r < kRows; ++r) {
    for (int32_t id : b.distinct_below(kExperts, kChosen)) chosen.push_back(id);
  }
  const Tensor ids = b.ints(chosen, kRows, kChosen);
  const Tensor weights = b.floats(std::vector<float>(kRows * kChosen, 0.3f), kRows, kChosen);
  const Tensor scratch = b.floats(std::vector<float>(kRows * kChosen * kWidth, NAN), kRows * kChosen, kWidth);
  const Tensor x = b.activations(kRows, kIn), sum = b.residuals(kRows, kIn);
  backend->ops().begin_step(true);
  expect_same_rows(b, "experts, seed " + std::to_string(seed), sum, [&](int64_t r, int64_t n) {
    backend->ops().experts(*up_linear, *down_linear, x.slice_rows(r, n), ids.slice_rows(r, n), weights.slice_rows(r, n),
                           scratch.slice_rows(r * kChosen, n * kChosen), sum.slice_rows(r, n));
  });
}

// What the experts op makes of rows of ones and zeros, row r of `x` through expert ids[r] alone.
std::vector<float> one_expert_each(Backend& backend, const Linear& up, const Linear& down,
                                   const std::vector<int32_t>& ids, const std::vector<bf16>& x, bool decodes = true) {
  const int64_t rows = static_cast<int64_t>(ids.size()), width = 3 * down.in + down.out;
  Bench b(backend, 1);
  const OwnedTensor in = backend.allocate(rows, up.in, DType::kBF16);
  backend.upload(x.data(), in.view);
  const Tensor y = b.floats(std::vector<float>(static_cast<size_t>(rows * down.out), 0.0f), rows, down.out);
  const Tensor scratch = b.floats(std::vector<float>(static_cast<size_t>(rows * width), NAN), rows, width);
  backend.ops().begin_step(decodes);
  backend.ops().experts(up, down, in.view, b.ints(ids, rows, 1),
                        b.floats(std::vector<float>(ids.size(), 1.0f), rows, 1), scratch, y);
  backend.ops().begin_step(false);
  return b.read(y);
}

std::vector<bf16> rows_of_one(int64_t rows, int64_t cols, int64_t first) {
  std::vector<bf16> x(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r) x[static_cast<size_t>(r * cols + first + r)] = to_bf16(1.0f);
  return x;
}

// A gate of 64 and an up projection of 1/64 hand the row on; then one input's weights come out.
TEST_P(CudaTierRows, DownWeightsOfExpertsAreThoseOfTheTier) {
  const Tier tier = GetParam();
  if (tier == Tier::kBf16) return;
  const uint32_t seed = fresh_seed();
  const auto backend = testing_cuda::make_backend();
  constexpr int kExperts = 3;
  constexpr int64_t kIn = 216, kOut = 77;
  const CodedExperts down(tier, kExperts, kOut, kIn, seed);
  std::vector<bf16> hand_on(2 * kIn * kOut);
  const auto place_of = [](int64_t i) { return i * 73 % kIn; };  // all over the row
  for (int64_t i = 0; i < kOut; ++i) {
    hand_on[static_cast<size_t>(place_of(i) * kOut + i)] = to_bf16(64.0f);
    hand_on[static_cast<size_t>((kIn + place_of(i)) * kOut + i)] = to_bf16(0x1p-6f);
  }
  const std::vector<std::vector<HostTensor>> up(kExperts, {{"w", DType::kBF16, {2 * kIn, kOut}, hand_on.data()}});
  const auto up_linear = backend->place_experts(up, ExpertLayout::kOutIn, {0, "gate_up"});
  const std::vector<int32_t> ids = {2, 0, 1, 1, 2, 0, 0};
  for (const bool turned : {false, true}) {
    const auto w = backend->place_experts(turned ? down.turned() : down.rows(),
                                          turned ? ExpertLayout::kInOut : ExpertLayout::kOutIn, {0, "mlp_down", tier});
    for (int64_t first = 0; first < kOut; first += 7) {
      const auto got = one_expert_each(*backend, *up_linear, *w, ids, rows_of_one(7, kOut, first));
      for (size_t r = 0; r < 7; ++r) {
        std::vector<double> one(kIn);
        one[static_cast<size_t>(place_of(first + static_cast<int64_t>(r)))] = 1;
        const std::vector<double> want = down.product(ids[r], one);
        for (size_t o = 0; o < kOut; ++o) ASSERT_EQ(got[r * kOut + o], want[o]) << r << " " << o << ", seed " << seed;
      }
    }
  }
}

// The identity behind them.
TEST_P(CudaTierRows, GateAndUpWeightsOfExpertsAreThoseOfTheTier) {
  const Tier tier = GetParam();
  if (tier == Tier::kBf16) return;
  const uint32_t seed = fresh_seed();
  const auto backend = testing_cuda::make_backend();
  constexpr int kExperts = 3;
  constexpr int64_t kIn = 217, kInner = 37;
  const CodedExperts up(tier, kExperts, 2 * kInner, kIn, seed);
  std::vector<bf16> identity(kInner * kIn);
  for (int64_t i = 0; i < kInner; ++i) identity[static_cast<size_t>(i * kInner + i)] = to_bf16(1.0f);
  const std::vector<std::vector<HostTensor>> down(kExperts, {{"w", DType::kBF16, {kIn, kInner}, identity.data()}});
  const auto down_linear = backend->place_experts(down, ExpertLayout::kOutIn, {0, "mlp_down"});
  const auto plain = backend->place_experts(up.rows(), ExpertLayout::kOutIn, {0, "gate_up", tier}),
             halves = backend->place_experts(up.halves(), ExpertLayout::kOutIn, {0, "gate_up", tier}),
             turned = backend->place_experts(up.turned(), ExpertLayout::kInOut, {0, "gate_up", tier});
  const std::vector<int32_t> ids = {2, 0, 1, 1, 2, 0, 0};
  for (const auto* w : {&plain, &halves, &turned}) {
    for (int64_t first = 0; first < kIn; first += 7) {
      const auto got = one_expert_each(*backend, **w, *down_linear, ids, rows_of_one(7, kIn, first));
      for (size_t r = 0; r < 7; ++r) {
        std::vector<double> one(kIn);
        one[static_cast<size_t>(first) + r] = 1;
        const std::vector<double> of = up.product(ids[r], one);
        for (size_t i = 0; i < kInner; ++i) {
          const double want = of[i] / (1 + std::exp(-of[i])) * of[kInner + i];
          ASSERT_NEAR(got[r * kIn + i], want, 1e-5 * std::fabs(want) + 1e-30) << r << " " << i << ", seed " << seed;
        }
      }
    }
  }
}

TEST_P(CudaTierRows, CodesOfExpertsAreUsedAsTheyAre) {
  const Tier tier = GetParam();
  if (tier == Tier::kBf16) return;
  const auto backend = testing_cuda::make_backend();
  constexpr int64_t kIn = 216, kInner = 40;
  const CodedExperts up(tier, 3, 2 * kInner, kIn, 7), down(tier, 3, kIn, kInner, 8);
  const auto place = [&](const CodedExperts::Tensors& rows, ExpertLayout layout, const char* projection,
                         std::vector<CodedMatrix> coded) {
    return backend->place_experts(rows, layout, {0, projection, tier, std::move(coded)});
  };
  constexpr auto kOutIn = ExpertLayout::kOutIn, kInOut = ExpertLayout::kInOut;
  const auto made_up = place(up.rows(), kOutIn, "gate_up", {}), made_down = place(down.rows(), kOutIn, "mlp_down", {}),
             alone_up = place(up.without_rows(), kOutIn, "gate_up", up.coded()),
             alone_down = place(down.without_rows(), kOutIn, "mlp_down", down.coded()),
             both_up = place(up.turned(), kInOut, "gate_up", up.coded()),
             halves_up = place(up.halves(), kOutIn, "gate_up", up.coded_halves());
  const auto rounded_up = backend->place_experts(up.rounded(), kOutIn, {0, "gate_up"}),
             rounded_down = backend->place_experts(down.rounded(), kOutIn, {0, "mlp_down"});
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<bf16> x(4 * kIn);
  for (bf16& v : x) v = to_bf16(normal(random));
  const auto run = [&](const Linear& u, const Linear& d, bool decodes) {
    return one_expert_each(*backend, u, d, {0, 2, 1, 2}, x, decodes);
  };
  const auto decoded = run(*made_up, *made_down, true), exact = run(*made_up, *made_down, false);
  EXPECT_TRUE(same_bits(run(*alone_up, *alone_down, true), decoded));
  EXPECT_TRUE(same_bits(run(*both_up, *alone_down, true), decoded));
  EXPECT_TRUE(same_bits(run(*halves_up, *made_down, true), decoded));
  EXPECT_TRUE(same_bits(run(*both_up, *made_down, false), exact));
  EXPECT_TRUE(same_bits(run(*alone_up, *alone_down, false), run(*rounded_up, *rounded_down, false)));
}

INSTANTIATE_TEST_SUITE_P(Tiers, CudaTierRows,
                         testing::Values(Tier::kBf16, Tier::kInt8, Tier::kW8, Tier::kInt4, Tier::kW4, Tier::kNvfp4),
                         [](const auto& info) { return std::string(tier_name(info.param)); });

TEST_F(CudaRows, SameBitsFrom1To8OfDecodeAttention) {
  const uint32_t seed = fresh_seed();
  const auto backend = testing_cuda::make_backend();
  struct Heads {
    int heads, kv_heads, head_dim;
  };
  for (const Heads s : {Heads{4, 2, 128}, {3, 1, 128}, {16, 2, 64}, {2, 2, 72}}) {
    for (const bool one_sequence : {false, true}) {
      Bench b(*backend, seed);
      const AttentionShape shape{s.heads, s.kv_heads, s.head_dim, 1 / std::sqrt(static_cast<float>(s.head_dim))};
      const Step step = b.step({1, 64, 65, 700, 129, 128, 63, 1581}, one_sequence);
      const KvLayer cache = b.cache(shape);
      const int64_t cols = int64_t{s.heads} * s.head_dim;
      const Tensor q = b.activations(kRows, cols, 2, 2 * cols), out = b.poisoned(kRows, cols);
      const std::string what = std::to_string(s.heads) + "q_" + std::to_string(s.kv_heads) + "kv_" +
                               std::to_string(s.head_dim) + (one_sequence ? " one sequence" : "") + ", seed " +
                               std::to_string(seed);
      expect_same_rows(b, what, out, [&](int64_t r, int64_t n) {
        Step rows = step;
        rows.rows = n;
        for (Tensor* t : {&rows.lengths, &rows.sequences, &rows.slots}) *t = t->slice_rows(r, n);
        backend->ops().attend_cache(q.slice_rows(r, n), rows, cache, shape, out.slice_rows(r, n));
      });
    }
  }
}

// Two layers of one row, in one launch where the device can.
struct TwoLayers {
  static constexpr int64_t kHidden = 264, kInner = 400;

  TwoLayers(Bench& bench, const AttentionShape& of, KvMode mode, int32_t length)
      : b(bench),
        ops(dynamic_cast<cuda::CudaBackendBase&>(b.backend()).cuda_ops()),
        shape(of),
        step(b.step({length}, true)),
        norm(b.norm(kHidden, false)),
        x(b.residuals(1, kHidden)),
        h(b.poisoned(1, kHidden)) {
    const int64_t q = int64_t{shape.heads} * shape.head_dim,
                  qkv_size = q + 2 * int64_t{shape.kv_heads} * shape.head_dim;
    const Norm of_head = b.norm(shape.head_dim, false);
    norms = {of_head, of_head,
             b.floats(std::vector<float>(static_cast<size_t>(shape.head_dim), 0.7f), 1, shape.head_dim)};
    qkv_w = b.linear({qkv_size}, kHidden, false);
    o = b.linear({kHidden}, q, false);
    gate_up = b.linear({kInner, kInner}, kHidden, false, {0, "gate_up"});
    down = b.linear({kHidden}, kInner, false);
    qkv = b.poisoned(1, qkv_size);
    attended = b.poisoned(1, q);
    scratch = b.poisoned(1, 2 * kInner);
    act = b.poisoned(1, kInner);
    for (KvLayer& layer : layers) layer = b.cache(shape, mode);
    before = b.read(x);
  }

  // What x is after them, and after `end`.
  std::vector<float> run(bool chained, const std::function<void(cuda::CudaOps&)>& end = {}) {
    b.write(before, x);
    ops.begin_step(true);
    if (chained) ops.begin_chain();
    for (const KvLayer& layer : layers) {
      ops.norm_linear(norm, *qkv_w, x, h, qkv);
      ops.norm_rope_attend(qkv, norms, step, layer, shape, attended);
      ops.linear_add(*o, attended, h, x);
      ops.norm_gate_up(norm, *gate_up, x, h, scratch, act);
      ops.linear_add(*down, act, h, x);
    }
    if (end) end(ops);
    if (chained) ops.finish_chain();
    ops.begin_step(false);
    return b.read(x);
  }

  Bench& b;
  cuda::CudaOps& ops;
  const AttentionShape shape;
  const Step step;
  const Norm norm;
  const Tensor x, h;
  HeadNorms norms;
  std::unique_ptr<Linear> qkv_w, o, gate_up, down;
  Tensor qkv, attended, scratch, act;
  KvLayer layers[2];
  std::vector<float> before;
};

// At caches so long that a block takes several parts.
TEST_F(CudaRows, SameBitsInOneLaunch) {
  const uint32_t seed = fresh_seed();
  const auto backend = testing_cuda::make_backend();
  for (const AttentionShape shape : {AttentionShape{16, 8, 128, 0.09f}, {24, 8, 64, 0.125f}, {8, 1, 128, 0.09f}}) {
    for (const KvMode mode : {KvMode::kBf16, KvMode::kInt8}) {
      for (const int32_t length : {1, 100, 1581, 2049, 5003, 9000}) {
        Bench b(*backend, seed);
        TwoLayers layers(b, shape, mode, length);
        const std::vector<float> apart = layers.run(false);
        EXPECT_TRUE(std::none_of(apart.begin(), apart.end(), [](float v) { return std::isnan(v); }));
        for (int i = 0; i < 2; ++i) {
          EXPECT_TRUE(same_bits(layers.run(true), apart)) << shape.heads << "q_" << shape.kv_heads << "kv_"
                                                          << shape.head_dim << " at " << length << ", seed " << seed;
        }
      }
    }
  }
}

TEST_F(CudaRows, TheSameIdInOneLaunch) {
  const uint32_t seed = fresh_seed();
  const auto backend = testing_cuda::make_backend();
  constexpr int64_t kVocab = 5003, kHidden = TwoLayers::kHidden;
  enum class Logits { kAny, kTied, kNegative, kNotFinite };
  for (const Logits kind : {Logits::kAny, Logits::kTied, Logits::kNegative, Logits::kNotFinite}) {
    Bench b(*backend, seed);
    TwoLayers layers(b, {16, 8, 128, 0.09f}, KvMode::kBf16, 100);
    // Of few different rows many are the largest.
    const int64_t different = kind == Logits::kAny ? kVocab : 13;
    std::vector<bf16> rows(static_cast<size_t>(kVocab * kHidden)), bias(kVocab);
    for (int64_t i = 0; i < kVocab; ++i) {
      bias[static_cast<size_t>(i)] = to_bf16(kind == Logits::kNegative ? -100.0f : 0.0f);
      for (int64_t k = 0; k < kHidden; ++k) {
        const int64_t same = (i - different) * kHidden + k;
        rows[static_cast<size_t>(i * kHidden + k)] =
            same < 0 ? to_bf16(b.normal(0.06f)) : rows[static_cast<size_t>(same)];
      }
    }
    if (kind == Logits::kNotFinite) bias[kVocab - 3] = to_bf16(INFINITY);
    const auto head = backend->place({{"head", DType::kBF16, {kVocab, kHidden}, rows.data()}},
                                     {{"bias", DType::kBF16, {kVocab}, bias.data()}}, {});
    const Tensor logits = b.poisoned_residuals(1, kVocab);
    Step step = layers.step;
    step.sampled = b.ints({-9}, 1, 1);
    const auto choose = [&](cuda::CudaOps& ops) {
      ops.norm_linear(layers.norm, *head, layers.x, layers.h, logits);
      ops.sample(logits, step);
    };
    layers.run(false, choose);
    const std::vector<float> apart = b.read(logits);
    const float id = b.read(step.sampled)[0];
    if (kind == Logits::kNotFinite) {
      EXPECT_EQ(id, -1);
    } else {
      EXPECT_EQ(id, std::max_element(apart.begin(), apart.end()) - apart.begin());
    }
    for (int i = 0; i < 2; ++i) {
      step.sampled = b.ints({-9}, 1, 1);
      layers.run(true, choose);
      EXPECT_TRUE(same_bits(b.read(logits), apart));
      EXPECT_EQ(b.read(step.sampled)[0], id) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace vireo::testing_ops
