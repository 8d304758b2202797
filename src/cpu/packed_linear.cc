// SPDX-License-Identifier: Apache-2.0
#include "cpu/packed_linear.h"

#include <algorithm>
#include <cstring>

namespace vireo::cpu {
namespace {

// A panel whose rows are of two parts, or lie [in, out], is gathered first.
void pack_one(const PackedLinear& w, int64_t group, int64_t index, const Kernels& k, bf16* panel) {
  const auto& parts = w.parts[static_cast<size_t>(group)];
  const int64_t first = w.first_out(index), outs = w.outs_of(index);
  const WeightRow begin = weight_row(parts, first), end = weight_row(parts, first + outs - 1);
  if (begin.matrix == end.matrix && begin.matrix->in_stride == 1) {
    return k.pack_panel(begin.data, begin.matrix->out_stride, outs, w.in, panel);
  }
  std::vector<bf16> gathered(static_cast<size_t>(outs * w.in));
  gather_rows(parts, first, outs, gathered.data());
  k.pack_panel(gathered.data(), w.in, outs, w.in, panel);
}

// Values of nibbles whose low three bits are a magnitude.
constexpr float kE2m1Values[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6};
constexpr float kInt4Values[16] = {0, 1, 2, 3, 4, 5, 6, 7, -0.0f, -1, -2, -3, -4, -5, -6, -7};

TierPanels empty_panels(Tier tier, int64_t in) {
  TierPanels t;
  t.groups = (in + kTierGroup - 1) / kTierGroup;
  t.codes = tier == Tier::kInt8 ? TierPanels::Codes::kInt8
            : tier == Tier::kW8 ? TierPanels::Codes::kE4m3
                                : TierPanels::Codes::kNibbles;
  if (tier == Tier::kW4) t.nibble_values = kE2m1Values;
  if (tier == Tier::kInt4) t.nibble_values = kInt4Values;
  return t;
}

// A nibble of the logical layout as sign and magnitude.
uint32_t sign_and_magnitude(Tier tier, uint32_t nibble) {
  if (tier != Tier::kInt4 || nibble < 8) return nibble;
  return 8 | (16 - nibble);
}

// One output's codes and scales to its place `o` in the panel.
void put_row(Tier tier, const TierPanels& t, const std::vector<uint8_t>& codes, const std::vector<bf16>& scales,
             int64_t o, uint8_t* panel) {
  const bool nibbles = t.codes == TierPanels::Codes::kNibbles;
  for (int64_t g = 0; g < t.groups; ++g) {
    uint8_t* group = panel + g * t.group_bytes();
    std::memcpy(group + o * 2, &scales[static_cast<size_t>(g)], 2);
    uint8_t* to = group + kPanelOuts * 2;
    if (!nibbles) {
      for (int64_t k = 0; k < kTierGroup; ++k) to[k * kPanelOuts + o] = codes[static_cast<size_t>(g * kTierGroup + k)];
      continue;
    }
    for (int64_t half = 0; half < 2; ++half) {
      uint32_t word = 0;
      for (int64_t j = 0; j < 8; ++j) {
        const uint8_t pair = codes[static_cast<size_t>((g * kTierGroup + half * 8 + j) / 2)];
        word |= sign_and_magnitude(tier, j % 2 == 0 ? pair & 15u : pair >> 4u) << (4 * j);
      }
      std::memcpy(to + (half * kPanelOuts + o) * 4, &word, 4);
    }
  }
}

void pack_tier_panel(const PackedLinear& w, Tier tier, int64_t index, uint8_t* panel) {
  const TierPanels& t = w.tier;
  const int64_t padded = t.groups * kTierGroup, outs = w.outs_of(index);
  std::memset(panel, 0, static_cast<size_t>(t.panel_bytes()));
  std::vector<bf16> row(static_cast<size_t>(w.in)), scales(static_cast<size_t>(t.groups));
  std::vector<uint8_t> codes(static_cast<size_t>(padded));
  for (int64_t o = 0; o < outs; ++o) {
    gather_rows(w.parts[0], w.first_out(index) + o, 1, row.data());
    std::fill(codes.begin(), codes.end(), uint8_t{0});
    quantize_row(tier, row.data(), w.in, codes.data(), scales.data());
    put_row(tier, t, codes, scales, o, panel);
  }
}

}  // namespace

std::unique_ptr<PackedLinear> pack(const HostLinear& linear, const Role& role, const Kernels& kernels, ThreadPool& pool,
                                   HugeMemory& memory) {
  using Order = PackedLinear::Order;
  const bool turns = role.projection == "gate_up" && linear.out % (2 * kPanelOuts) == 0 && linear.bias.empty();
  auto packed = std::make_unique<PackedLinear>(linear, turns ? Order::kGateUp : Order::kPlain);
  const int64_t count = panels_of(linear.out), size = panel_size(linear.in);
  bf16* panels = static_cast<bf16*>(memory.take(static_cast<size_t>(linear.groups * count * size) * sizeof(bf16)));
  pool.run(linear.groups * count,
           [&](int64_t item, int) { pack_one(*packed, item / count, item % count, kernels, panels + item * size); });
  packed->panels = panels;
  if (role.tier != Tier::kBf16 && linear.groups == 1) {
    TierPanels& t = packed->tier = empty_panels(role.tier, linear.in);
    uint8_t* data = static_cast<uint8_t*>(memory.take(static_cast<size_t>(count * t.panel_bytes())));
    pool.run(count,
             [&](int64_t item, int) { pack_tier_panel(*packed, role.tier, item, data + item * t.panel_bytes()); });
    t.data = data;
  }
  return packed;
}

}  // namespace vireo::cpu
