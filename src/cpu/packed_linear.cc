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

// Nibbles 0, 2, 4 and 6 of a word to its low half, the others to the high one.
uint32_t even_nibbles_first(uint32_t word) {
  const auto gathered = [](uint32_t bytes) {
    bytes = (bytes | bytes >> 4) & 0x00ff00ff;
    return (bytes | bytes >> 8) & 0xffff;
  };
  return gathered(word & 0x0f0f0f0f) | gathered(word >> 4 & 0x0f0f0f0f) << 16;
}

// One output's scales and codes, zeros behind them, to its place `o` in the panel: for each group kCount times an Element as
// change(element) makes it.
template <typename Element, int kCount, typename Change>
void put_row(const TierPanels& t, const uint8_t* codes, const bf16* scales, int64_t o, uint8_t* panel, Change change) {
  for (int64_t g = 0; g < t.groups; ++g, codes += sizeof(Element) * kCount, panel += t.group_bytes()) {
    std::memcpy(panel + o * 2, scales + g, 2);
    for (int64_t i = 0; i < kCount; ++i) {
      Element e;
      std::memcpy(&e, codes + static_cast<size_t>(i) * sizeof e, sizeof e);
      e = change(e);
      std::memcpy(panel + kPanelOuts * 2 + static_cast<size_t>(i * kPanelOuts + o) * sizeof e, &e, sizeof e);
    }
  }
}

void put_row(const TierPanels& t, const uint8_t* codes, const bf16* scales, int64_t o, uint8_t* panel) {
  switch (t.codes) {
    case TierPanels::Codes::kInt8:
      return put_row<uint16_t, kTierGroup / 2>(t, codes, scales, o, panel, [](uint16_t pair) { return pair; });
    case TierPanels::Codes::kE4m3:
      return put_row<uint32_t, kTierGroup / 4>(t, codes, scales, o, panel, [](uint32_t quad) { return quad; });
    case TierPanels::Codes::kNibbles:
      return put_row<uint32_t, kTierGroup / 8>(t, codes, scales, o, panel, even_nibbles_first);
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
    put_row(t, row.data(), scales.data() + o * t.groups, o, panel);
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
