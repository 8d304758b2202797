// PackedLinear: the weights of one projection in the panels that the kernels read, beside the checkpoint's own rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>

#include "base/thread_pool.h"
#include "cpu/huge_memory.h"
#include "cpu/kernels.h"
#include "ops/host_memory.h"

namespace vireo::cpu {

class PackedLinear : public HostLinear {
 public:
  // kGateUp: panels of the first and the second half of the outputs take turns, so that one tile holds both. Needs halves of
  // whole panels.
  enum class Order { kPlain, kGateUp };
  PackedLinear(const HostLinear& rows, Order panel_order) : HostLinear(rows), order(panel_order) {}

  int64_t pairs() const { return pairs_of(in); }
  const bf16* panel(int64_t group, int64_t index) const {
    return panels + (group * panels_of(out) + index) * panel_size(in);
  }
  // The first of a panel's 16 outputs.
  int64_t first_out(int64_t index) const {
    if (order == Order::kPlain) return index * kPanelOuts;
    return index / 2 * kPanelOuts + index % 2 * (out / 2);
  }
  int64_t outs_of(int64_t index) const { return std::min<int64_t>(kPanelOuts, out - first_out(index)); }

  const Order order;
  const bf16* panels = nullptr;  // in HugeMemory; null where the tier is read in prefill too
  TierPanels tier;               // beside them, group after group, for decode steps
};

// Packs every group; the panels follow the projection's role.
std::unique_ptr<PackedLinear> pack(const HostLinear& linear, const Role& role, const Kernels& kernels, ThreadPool& pool,
                                   HugeMemory& memory);

}  // namespace vireo::cpu
