// SPDX-License-Identifier: Apache-2.0
#include "cpu/packed_linear.h"

#include <algorithm>
#include <cstring>

namespace vireo::cpu {
namespace {

// A panel whose rows are of two parts, lie [in, out] or are codes is gathered first.
void pack_one(const PackedLinear& w, int64_t group, int64_t index, const Kernels& k, bf16* panel) {
  const auto& parts = w.parts[static_cast<size_t>(group)];
  const int64_t first = w.first_out(index), outs = w.outs_of(index);
  const WeightRow begin = weight_row(parts, first), end = weight_row(parts, first + outs - 1);
  if (begin.data && begin.matrix == end.matrix && begin.matrix->in_stride == 1) {
    return k.pack_panel(begin.data, begin.matrix->out_stride, outs, w.in, panel);
  }
  std::vector<bf16> gathered(static_cast<size_t>(outs * w.in));
  gather_rows(parts, first, outs, gathered.data());
  k.pack_panel(gathered.data(), w.in, outs, w.in, panel);
}

// By nibble: e2m1 in halves, int4.
constexpr int16_t kE2m1Halves[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr int16_t kInt4Values[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};

TierPanels empty_panels(Tier tier, int64_t in) {
  TierPanels t;
  t.groups = (in + kTierGroup - 1) / kTierGroup;
  t.codes = tier == Tier::kInt8 ? TierPanels::Codes::kInt8
            : tier == Tier::kW8 ? TierPanels::Codes::kE4m3
                                : TierPanels::Codes::kNibbles;
  const bool e2m1 = tier == Tier::kW4 || tier == Tier::kNvfp4;
  t.nibble_values = e2m1 ? kE2m1Halves : kInt4Values;
  if (e2m1) t.nibble_unit = 0.5f;
  return t;
}

// One output's codes, zeros behind them, and scales to its place `o` in the panel.
void put_row(const TierPanels& t, const std::vector<uint8_t>& codes, const bf16* scales, int64_t o, uint8_t* panel) {
  for (int64_t g = 0; g < t.groups; ++g) {
    uint8_t* group = panel + g * t.group_bytes();
    std::memcpy(group + o * 2, scales + g, 2);
    uint8_t* to = group + kPanelOuts * 2;
    for (int64_t k = 0; k < kTierGroup; ++k) {
      const size_t at = static_cast<size_t>(g * kTierGroup + k);
      switch (t.codes) {
        case TierPanels::Codes::kInt8:
          to[(k / 2 * kPanelOuts + o) * 2 + k % 2] = codes[at];
          break;
        case TierPanels::Codes::kE4m3:
          to[(k / 4 * kPanelOuts + o) * 4 + k % 4] = codes[at];
          break;
        case TierPanels::Codes::kNibbles: {
          const int nibble = codes[at / 2] >> (at % 2 * 4) & 15;
          uint8_t* word = to + (k / 8 * kPanelOuts + o) * 4;
          word[k % 2 * 2 + k % 8 / 4] = static_cast<uint8_t>(word[k % 2 * 2 + k % 8 / 4] | nibble << (k % 4 / 2 * 4));
        }
      }
    }
  }
}

void pack_tier_panel(const PackedLinear& w, Tier tier, int64_t group, int64_t index, uint8_t* panel) {
  const TierPanels& t = w.tier;
  const int64_t outs = w.outs_of(index), row_codes = code_bytes(tier, w.in);
  std::memset(panel, 0, static_cast<size_t>(t.panel_bytes()));
  std::vector<bf16> scales(static_cast<size_t>(outs * t.groups));
  std::vector<uint8_t> codes(static_cast<size_t>(outs * row_codes)), row(static_cast<size_t>(t.groups * kTierGroup));
  tier_rows(w.parts[static_cast<size_t>(group)], tier, w.first_out(index), outs, codes.data(), scales.data());
  for (int64_t o = 0; o < outs; ++o) {
    std::copy_n(codes.data() + o * row_codes, row_codes, row.data());
    put_row(t, row, scales.data() + o * t.groups, o, panel);
  }
}

}  // namespace

std::unique_ptr<PackedLinear> pack(const HostLinear& linear, const Role& role, const Kernels& kernels, ThreadPool& pool,
                                   HugeMemory& memory) {
  using Order = PackedLinear::Order;
  const bool turns = role.projection == "gate_up" && linear.out % (2 * kPanelOuts) == 0 && linear.bias.empty();
  auto packed = std::make_unique<PackedLinear>(linear, turns ? Order::kGateUp : Order::kPlain);
  const int64_t count = panels_of(linear.out), all = linear.groups * count, size = panel_size(linear.in);
  if (!role.codes_alone) {
    bf16* panels = static_cast<bf16*>(memory.take(static_cast<size_t>(all * size) * sizeof(bf16)));
    pool.run(all,
             [&](int64_t item, int) { pack_one(*packed, item / count, item % count, kernels, panels + item * size); });
    packed->panels = panels;
  }
  if (role.tier != Tier::kBf16) {
    TierPanels& t = packed->tier = empty_panels(role.tier, linear.in);
    uint8_t* data = static_cast<uint8_t*>(memory.take(static_cast<size_t>(all * t.panel_bytes())));
    pool.run(all, [&](int64_t item, int) {
      pack_tier_panel(*packed, role.tier, item / count, item % count, data + item * t.panel_bytes());
    });
    t.data = data;
  }
  return packed;
}

}  // namespace vireo::cpu
