// Experts in a tier on the host's backends: a decode step against plain sums in double precision of what the tier makes of the rows, whatever
// the layout of the checkpoint; codes of a checkpoint; the same bits for any number of rows.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"
#include "op_bench.h"
#include "ops/host_memory.h"
#include "ops/reference.h"

namespace vireo::testing_ops {
namespace {

constexpr int kExperts = 4;
constexpr int64_t kChosen = 2;

struct Size {
  int64_t h, im;
};
constexpr Size kSizes[] = {{17, 5}, {1, 1}, {56, 40}, {214, 96}, {640, 72}};

// One expert set's matrices, and what becomes of random rows.
struct Mixture {
  Mixture(Tier tier, const Size& s, uint32_t seed)
      : size(s), up(tier, kExperts, 2 * s.im, s.h, seed), down(tier, kExperts, s.h, s.im, seed + 100) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < kRows * s.h; ++i) x.push_back(to_float(to_bf16(normal(random))));
    for (int64_t i = 0; i < kRows * kChosen; ++i) {
      // The two of a row are not the same.
      ids.push_back(static_cast<int32_t>((random() % 2) * 2 + static_cast<uint32_t>(i % kChosen)));
      weights.push_back(std::fabs(normal(random)));
    }
  }

  std::vector<float> oracle() const {
    std::vector<float> y;
    for (int64_t r = 0; r < kRows; ++r) {
      const std::vector<double> row(x.begin() + r * size.h, x.begin() + (r + 1) * size.h);
      std::vector<double> sum(static_cast<size_t>(size.h));
      for (int64_t k = 0; k < kChosen; ++k) {
        const size_t at = static_cast<size_t>(r * kChosen + k);
        std::vector<double> gate = up.product(ids[at], row), act;
        for (size_t i = 0; i < static_cast<size_t>(size.im); ++i)
          act.push_back(gate[i] / (1 + std::exp(-gate[i])) * gate[i + static_cast<size_t>(size.im)]);
        const std::vector<double> out = down.product(ids[at], act);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += double{weights[at]} * out[i];
      }
      y.insert(y.end(), sum.begin(), sum.end());
    }
    return y;
  }

  // Rows [0, rows) of the op's result on residuals of zeros.
  std::vector<float> run(Backend& backend, const Linear& up_linear, const Linear& down_linear, bool decodes,
                         int64_t rows = kRows) const {
    Bench b(backend, 1);
    const int64_t width = 3 * size.im + size.h;
    const Tensor in = b.floats(x, kRows, size.h).slice_rows(0, rows);
    const Tensor y = b.floats(std::vector<float>(static_cast<size_t>(rows * size.h), 0.0f), rows, size.h);
    const Tensor scratch =
        b.floats(std::vector<float>(static_cast<size_t>(rows * kChosen * width), NAN), rows * kChosen, width);
    backend.ops().begin_step(decodes);
    backend.ops().experts(up_linear, down_linear, in, b.ints(ids, kRows, kChosen).slice_rows(0, rows),
                          b.floats(weights, kRows, kChosen).slice_rows(0, rows), scratch, y);
    backend.ops().begin_step(false);
    return b.read(y);
  }

  static constexpr int64_t kRows = 8;
  Size size;
  CodedExperts up, down;
  std::vector<float> x, weights;
  std::vector<int32_t> ids;
};

class ExpertTiers : public testing::TestWithParam<Tier> {
 protected:
  // body(backend) for all of this machine.
  template <typename Body>
  void for_backends(Body body) const {
    body(*make_reference_backend());
    for (const cpu::Kernels* k : cpu::usable_kernels()) {
      SCOPED_TRACE(k->name);
      body(*make_cpu_backend({.threads = 2, .isa = k->name}));
    }
  }

  static Role role(const char* projection, Tier tier, std::vector<CodedMatrix> coded = {}) {
    return {0, projection, tier, std::move(coded)};
  }
};

TEST_P(ExpertTiers, MatchSumsInDoublePrecision) {
  const Tier tier = GetParam();
  const uint32_t seed = std::random_device{}();
  for (const Size& s : kSizes) {
    SCOPED_TRACE(std::to_string(s.h) + " x " + std::to_string(s.im) + ", seed " + std::to_string(seed));
    const Mixture m(tier, s, seed);
    const std::vector<float> want = m.oracle();
    for_backends([&](Backend& backend) {
      const bool is_reference = backend.name() == "reference";
      // Integer tiers read rows as integers of 16 bits, here those of two products, one after the other, of few values.
      const double tolerance = is_reference ? 1e-6 : tier == Tier::kW8 ? 3e-6 : 2e-4;
      const auto check = [&](const CodedExperts::Tensors& up, const CodedExperts::Tensors& down, ExpertLayout layout) {
        const auto up_linear = backend.place_experts(up, layout, role("gate_up", tier));
        const auto down_linear = backend.place_experts(down, layout, role("mlp_down", tier));
        EXPECT_LE(relative_error(m.run(backend, *up_linear, *down_linear, true), want), tolerance);
      };
      check(m.up.rows(), m.down.rows(), ExpertLayout::kOutIn);
      check(m.up.halves(), m.down.rows(), ExpertLayout::kOutIn);
      check(m.up.turned(), m.down.turned(), ExpertLayout::kInOut);
    });
  }
}

TEST_P(ExpertTiers, CodesAreThoseOfTheRows) {
  const Tier tier = GetParam();
  for (const Size& s : kSizes) {
    const CodedExperts w(tier, kExperts, 2 * s.im, s.h, std::random_device{}());
    const std::vector<CodedMatrix> coded = w.coded();
    const size_t code_count = static_cast<size_t>(code_bytes(tier, s.h)),
                 groups = static_cast<size_t>(tier_groups(s.h));
    const auto check = [&](const CodedExperts::Tensors& rows, ExpertLayout layout) {
      const auto host = make_host_experts(rows, layout, role("gate_up", tier));
      std::vector<bf16> want(groups);
      for (size_t e = 0; e < kExperts; ++e) {
        // All but the first row: blocks of rows that are read together do not begin where parts do.
        const int64_t first = std::min<int64_t>(1, host->out - 1), count = host->out - first;
        std::vector<uint8_t> codes(code_count * static_cast<size_t>(count));
        std::vector<bf16> scales(groups * static_cast<size_t>(count));
        tier_rows(host->parts[e], tier, first, count, codes.data(), scales.data());
        for (int64_t o = 0; o < count; ++o) {
          const CodedMatrix row = coded[e].from_row(first + o, s.h);
          row.read_scales(0, tier_groups(s.h), want.data());
          const size_t at = static_cast<size_t>(o);
          ASSERT_EQ(std::memcmp(&codes[at * code_count], row.codes, code_count), 0) << e << " " << o;
          ASSERT_EQ(std::memcmp(&scales[at * groups], want.data(), groups * sizeof(bf16)), 0) << e << " " << o;
        }
      }
    };
    check(w.rows(), ExpertLayout::kOutIn);
    check(w.halves(), ExpertLayout::kOutIn);
    check(w.turned(), ExpertLayout::kInOut);
  }
}

// A gate of zeros has the scale of the up projection beside it.
TEST(ExpertScales, PartsShareATensorScale) {
  const std::vector<bf16> zeros(32, bf16{}), small(32, to_bf16(0.01f));
  const auto host =
      make_host_experts({{{"gate", DType::kBF16, {2, 16}, zeros.data()}, {"up", DType::kBF16, {2, 16}, small.data()}}},
                        ExpertLayout::kOutIn, {0, "gate_up", Tier::kNvfp4});
  for (const WeightMatrix& m : host->parts[0])
    EXPECT_EQ(m.tensor_scale, tensor_scale_of(Tier::kNvfp4, small.data(), 32));
}

TEST_P(ExpertTiers, CodesAreUsedAsTheyAre) {
  const Tier tier = GetParam();
  for (const Size& s : kSizes) {
    const Mixture m(tier, s, 5);
    for_backends([&](Backend& backend) {
      const auto made_up = backend.place_experts(m.up.rows(), ExpertLayout::kOutIn, role("gate_up", tier)),
                 made_down = backend.place_experts(m.down.rows(), ExpertLayout::kOutIn, role("mlp_down", tier));
      const auto plain_up = backend.place_experts(m.up.rounded(), ExpertLayout::kOutIn, role("gate_up", Tier::kBf16)),
                 plain_down =
                     backend.place_experts(m.down.rounded(), ExpertLayout::kOutIn, role("mlp_down", Tier::kBf16));
      const auto decoded = m.run(backend, *made_up, *made_down, true),
                 exact = m.run(backend, *made_up, *made_down, false);
      const auto up = [&](const CodedExperts::Tensors& rows, ExpertLayout layout, std::vector<CodedMatrix> coded) {
        return backend.place_experts(rows, layout, role("gate_up", tier, std::move(coded)));
      };
      const auto alone = up(m.up.without_rows(), ExpertLayout::kOutIn, m.up.coded()),
                 turned = up(m.up.turned(), ExpertLayout::kInOut, m.up.coded()),
                 halves = up(m.up.halves(), ExpertLayout::kOutIn, m.up.coded_halves());
      const auto down =
          backend.place_experts(m.down.without_rows(), ExpertLayout::kOutIn, role("mlp_down", tier, m.down.coded()));
      for (const auto* linear : {&alone, &turned, &halves}) EXPECT_EQ(m.run(backend, **linear, *down, true), decoded);
      for (const auto* linear : {&turned, &halves}) EXPECT_EQ(m.run(backend, **linear, *made_down, false), exact);
      EXPECT_EQ(m.run(backend, *alone, *down, false), m.run(backend, *plain_up, *plain_down, false));
    });
  }
}

// Rows without codes in the tier, but in another one, are quantised anew.
TEST_P(ExpertTiers, OtherCodesThanTheTiersAreNotRead) {
  const Tier tier = GetParam(), other = tier == Tier::kInt8 ? Tier::kW4 : Tier::kInt8;
  const Size s = kSizes[2];
  const Mixture m(tier, s, 6);
  const CodedExperts others(other, kExperts, 2 * s.im, s.h, 6);
  for_backends([&](Backend& backend) {
    const auto up = backend.place_experts(m.up.rows(), ExpertLayout::kOutIn, role("gate_up", tier)),
               with = backend.place_experts(m.up.rows(), ExpertLayout::kOutIn, role("gate_up", tier, others.coded())),
               down = backend.place_experts(m.down.rows(), ExpertLayout::kOutIn, role("mlp_down", tier));
    EXPECT_EQ(m.run(backend, *with, *down, true), m.run(backend, *up, *down, true));
  });
}

TEST_P(ExpertTiers, SameBitsForAnyNumberOfRows) {
  for (const Size& s : kSizes) {
    const Mixture m(GetParam(), s, 7);
    for_backends([&](Backend& backend) {
      const auto up = backend.place_experts(m.up.turned(), ExpertLayout::kInOut, role("gate_up", GetParam())),
                 down = backend.place_experts(m.down.turned(), ExpertLayout::kInOut, role("mlp_down", GetParam()));
      const auto all = m.run(backend, *up, *down, true);
      for (int64_t rows = 1; rows < Mixture::kRows; ++rows)
        EXPECT_EQ(m.run(backend, *up, *down, true, rows), std::vector<float>(all.begin(), all.begin() + rows * s.h));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, ExpertTiers,
                         testing::Values(Tier::kInt8, Tier::kW8, Tier::kInt4, Tier::kW4, Tier::kNvfp4),
                         [](const auto& info) { return std::string(tier_name(info.param)); });

}  // namespace
}  // namespace vireo::testing_ops
