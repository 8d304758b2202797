// SPDX-License-Identifier: Apache-2.0
#include "cpu/packed_linear.h"

#include <algorithm>

namespace vireo::cpu {
namespace {

const bf16* row_of(const std::vector<WeightMatrix>& parts, int64_t out, const WeightMatrix** found) {
  for (const WeightMatrix& m : parts) {
    if (out < m.out) {
      *found = &m;
      return m.data + out * m.out_stride;
    }
    out -= m.out;
  }
  CHECK(false);
  return nullptr;
}

// A panel whose rows are of two parts, or lie [in, out], is gathered first.
void pack_one(const PackedLinear& w, int64_t group, int64_t index, const Kernels& k, bf16* panel) {
  const auto& parts = w.parts[static_cast<size_t>(group)];
  const int64_t first = w.first_out(index), outs = w.outs_of(index);
  const WeightMatrix *begin = nullptr, *end = nullptr;
  const bf16* rows = row_of(parts, first, &begin);
  row_of(parts, first + outs - 1, &end);
  if (begin == end && begin->in_stride == 1) return k.pack_panel(rows, begin->out_stride, outs, w.in, panel);
  std::vector<bf16> gathered(static_cast<size_t>(outs * w.in));
  for (int64_t o = 0; o < outs; ++o) {
    const WeightMatrix* m = nullptr;
    const bf16* row = row_of(parts, first + o, &m);
    for (int64_t i = 0; i < w.in; ++i) gathered[static_cast<size_t>(o * w.in + i)] = row[i * m->in_stride];
  }
  k.pack_panel(gathered.data(), w.in, outs, w.in, panel);
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
  return packed;
}

}  // namespace vireo::cpu
