// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace vireo::cpu {
namespace {

const HostLinear& host(const Linear& w) {
  return static_cast<const HostLinear&>(w);
}

int32_t index_at(Tensor t, int64_t r, int64_t c = 0) {
  return t.row<int32_t>(r)[c];
}

// Elements touched by one item of a row-wise op: some microseconds of work.
constexpr int64_t kItemCost = 16384;
// Outputs of one item of a matrix product, and rows of x that share the weights while they are in cache.
constexpr int64_t kItemOuts = 64;
constexpr int64_t kItemRows = 64;

// Rows [first, first + outs) of a group's stacked matrices times `rows` rows of x, at most kItemRows.
void multiply(const Kernels& k, const HostLinear& w, int64_t group, int64_t first, int64_t outs, const float* x,
              int64_t x_stride, int64_t rows, float* y, int64_t y_stride) {
  int64_t part_first = 0;
  for (const WeightMatrix& m : w.parts[static_cast<size_t>(group)]) {
    const int64_t begin = std::max(first, part_first), end = std::min(first + outs, part_first + m.out);
    for (int64_t r = 0; begin < end && r < rows; r += kTileRows) {
      const int tile = static_cast<int>(std::min<int64_t>(kTileRows, rows - r));
      k.dot_tile(x + r * x_stride, x_stride, tile, m.data + (begin - part_first) * m.out_stride, m.out_stride,
                 end - begin, m.in, y + r * y_stride + begin, y_stride);
    }
    part_first += m.out;
  }
  if (w.bias.empty()) return;
  for (int64_t r = 0; r < rows; ++r) k.add(w.bias.data() + first, outs, y + r * y_stride + first);
}

}  // namespace

std::unique_ptr<HostLinear> turned_experts(const HostLinear& experts) {
  struct Turned : HostLinear {
    using HostLinear::HostLinear;
    std::vector<bf16> memory;
  };
  std::vector<bf16> memory(static_cast<size_t>(experts.groups * experts.out * experts.in));
  std::vector<std::vector<WeightMatrix>> groups;
  bf16* to = memory.data();
  for (const auto& group : experts.parts) {
    groups.emplace_back();
    for (const WeightMatrix& m : group) {
      groups.back().push_back({to, m.out, m.in, m.in, 1});
      for (int64_t o = 0; o < m.out; ++o) {
        for (int64_t i = 0; i < m.in; ++i) *to++ = m.data[o * m.out_stride + i * m.in_stride];
      }
    }
  }
  auto turned = std::make_unique<Turned>(experts.in, experts.out, std::move(groups), std::vector<float>{});
  turned->memory = std::move(memory);
  return turned;
}

template <typename Body>
void CpuOps::for_rows(int64_t rows, int64_t row_cost, Body body) {
  const int64_t grain = std::max<int64_t>(1, kItemCost / std::max<int64_t>(1, row_cost));
  pool_.run((rows + grain - 1) / grain, [&](int64_t item, int) {
    const int64_t end = std::min(rows, (item + 1) * grain);
    for (int64_t r = item * grain; r < end; ++r) body(r);
  });
}

void CpuOps::embed(const Linear& table, const Step& step, Tensor out) {
  const WeightMatrix& m = host(table).parts[0][0];
  for_rows(out.rows, out.cols, [&](int64_t r) {
    k_.from_bf16(m.data + index_at(step.ids, r) * m.out_stride, out.cols, out.row<float>(r));
  });
}

void CpuOps::normalize_pixels(Tensor bytes, const PixelScale& scale, Tensor out) {
  const int64_t per_channel = bytes.cols / 3;
  float table[3][256];
  for (int channel = 0; channel < 3; ++channel) {
    for (int v = 0; v < 256; ++v)
      table[channel][v] = (static_cast<float>(v) - scale.mean[channel]) / scale.std[channel];
  }
  for_rows(bytes.rows, bytes.cols, [&](int64_t r) {
    const uint8_t* from = bytes.row<uint8_t>(r);
    float* to = out.row<float>(r);
    for (int channel = 0; channel < 3; ++channel) {
      for (int64_t i = 0; i < per_channel; ++i) *to++ = table[channel][*from++];
    }
  });
}

void CpuOps::linear(const Linear& w, Tensor x, Tensor out) {
  const int64_t out_items = (w.out + kItemOuts - 1) / kItemOuts, row_items = (x.rows + kItemRows - 1) / kItemRows;
  pool_.run(out_items * row_items, [&](int64_t item, int) {
    const int64_t first = item / row_items * kItemOuts, row = item % row_items * kItemRows;
    multiply(k_, host(w), 0, first, std::min(kItemOuts, w.out - first), x.row<float>(row), x.stride,
             std::min(kItemRows, x.rows - row), out.row<float>(row), out.stride);
  });
}

void CpuOps::rms_norm(Tensor x, const Norm& norm, Tensor out) {
  const int64_t n = norm.weight.cols;
  for_rows(x.rows, x.cols, [&](int64_t r) {
    for (int64_t c = 0; c < x.cols; c += n) {
      k_.rms_norm(x.row<float>(r) + c, norm.weight.row<float>(0), n, norm.eps, out.row<float>(r) + c);
    }
  });
}

void CpuOps::layer_norm(Tensor x, const Norm& norm, Tensor out) {
  for_rows(x.rows, x.cols, [&](int64_t r) {
    k_.layer_norm(x.row<float>(r), norm.weight.row<float>(0), norm.bias.row<float>(0), x.cols, norm.eps,
                  out.row<float>(r));
  });
}

void CpuOps::rope_angles(Tensor positions, const RopeTable& table, Tensor cos_sin) {
  const int64_t n = table.inv_freq.cols;
  const float* inv_freq = table.inv_freq.row<float>(0);
  const int32_t* axis = table.axis.row<int32_t>(0);
  for_rows(positions.rows, 32 * n, [&](int64_t r) {
    for (int64_t j = 0; j < n; ++j) {
      const float angle = static_cast<float>(index_at(positions, r, axis[j])) * inv_freq[j];
      cos_sin.row<float>(r)[j] = std::cos(angle);
      cos_sin.row<float>(r)[n + j] = std::sin(angle);
    }
  });
}

void CpuOps::rope(Tensor x, Tensor cos_sin, int head_dim) {
  for_rows(x.rows, x.cols, [&](int64_t r) {
    for (int64_t c = 0; c < x.cols; c += head_dim) k_.rope(x.row<float>(r) + c, cos_sin.row<float>(r), head_dim / 2);
  });
}

void CpuOps::append_kv(Tensor k, Tensor v, const Step& step, KvLayer cache) {
  for_rows(k.rows, 2 * k.cols, [&](int64_t r) {
    const int64_t slot = index_at(step.slots, r);
    k_.to_bf16(k.row<float>(r), k.cols, cache.k.row<bf16>(slot));
    k_.to_bf16(v.row<float>(r), v.cols, cache.v.row<bf16>(slot));
  });
}

void CpuOps::norm_rope_append(Tensor qkv, const Norm& q_norm, const Norm& k_norm, Tensor cos_sin, const Step& step,
                              const AttentionShape& shape, KvLayer cache) {
  const int64_t hd = shape.head_dim, kv_size = shape.kv_heads * hd;
  for_rows(qkv.rows, 4 * qkv.cols, [&](int64_t r) {
    float* row = qkv.row<float>(r);
    for (int64_t h = 0; h < shape.heads + shape.kv_heads; ++h) {
      const Norm& norm = h < shape.heads ? q_norm : k_norm;
      k_.rms_norm(row + h * hd, norm.weight.row<float>(0), hd, norm.eps, row + h * hd);
      k_.rope(row + h * hd, cos_sin.row<float>(r), hd / 2);
    }
    const float* k = row + shape.heads * hd;
    const int64_t slot = index_at(step.slots, r);
    k_.to_bf16(k, kv_size, cache.k.row<bf16>(slot));
    k_.to_bf16(k + kv_size, kv_size, cache.v.row<bf16>(slot));
  });
}

namespace {

void begin(AttendState& state, float* acc, int head_dim) {
  state = {-INFINITY, 0, acc};
  std::fill_n(acc, head_dim, 0.0f);
}

void finish(const AttendState& state, int head_dim) {
  for (int d = 0; d < head_dim; ++d) state.acc[d] /= state.sum;
}

}  // namespace

void CpuOps::attend_cache(Tensor q, const Step& step, KvLayer cache, const AttentionShape& shape, Tensor out) {
  const int group = shape.heads / shape.kv_heads;
  pool_.run(q.rows * shape.heads, [&](int64_t item, int) {
    const int64_t r = item / shape.heads, h = item % shape.heads;
    const int64_t column = h / group * shape.head_dim, first = h * shape.head_dim;
    const int32_t* pages = step.page_table.row<int32_t>(index_at(step.sequences, r));
    const int64_t length = index_at(step.lengths, r);
    AttendState state;
    begin(state, out.row<float>(r) + first, shape.head_dim);
    for (int64_t j = 0; j < length; j += kPageTokens) {
      const int64_t slot = int64_t{pages[j / kPageTokens]} * kPageTokens;
      k_.attend_bf16(q.row<float>(r) + first, cache.k.row<bf16>(slot) + column, cache.v.row<bf16>(slot) + column,
                     cache.k.stride, static_cast<int>(std::min<int64_t>(kPageTokens, length - j)), shape.head_dim,
                     shape.scale, &state);
    }
    finish(state, shape.head_dim);
  });
}

void CpuOps::attend_spans(Tensor q, Tensor k, Tensor v, Spans spans, const AttentionShape& shape, Tensor out) {
  constexpr int kKeys = 64;
  for (int64_t s = 0; s < spans.count; ++s) {
    const int64_t first_row = spans.bounds[s], n = spans.bounds[s + 1] - first_row;
    pool_.run(n * shape.heads, [&](int64_t item, int) {
      const int64_t r = first_row + item % n, column = item / n * shape.head_dim;
      AttendState state;
      begin(state, out.row<float>(r) + column, shape.head_dim);
      for (int64_t j = 0; j < n; j += kKeys) {
        k_.attend_f32(q.row<float>(r) + column, k.row<float>(first_row + j) + column,
                      v.row<float>(first_row + j) + column, k.stride, static_cast<int>(std::min<int64_t>(kKeys, n - j)),
                      shape.head_dim, shape.scale, &state);
      }
      finish(state, shape.head_dim);
    });
  }
}

void CpuOps::silu_mul(Tensor x, Tensor out) {
  for_rows(out.rows, 8 * out.cols,
           [&](int64_t r) { k_.silu_mul(x.row<float>(r), x.row<float>(r) + out.cols, out.cols, out.row<float>(r)); });
}

void CpuOps::gelu(Tensor x, Gelu kind) {
  for_rows(x.rows, 8 * x.cols, [&](int64_t r) {
    if (kind == Gelu::kTanh) {
      k_.gelu_tanh(x.row<float>(r), x.cols);
    } else {
      k_.gelu_erf(x.row<float>(r), x.cols);
    }
  });
}

void CpuOps::add(Tensor x, Tensor inout) {
  for_rows(x.rows, x.cols, [&](int64_t r) { k_.add(x.row<float>(r), x.cols, inout.row<float>(r)); });
}

void CpuOps::add_rows(Tensor x, Tensor index, Tensor inout) {
  for_rows(x.rows, x.cols, [&](int64_t r) { k_.add(x.row<float>(r), x.cols, inout.row<float>(index_at(index, r))); });
}

void CpuOps::put_rows(Tensor x, Tensor index, Tensor inout) {
  for_rows(x.rows, x.cols,
           [&](int64_t r) { std::copy_n(x.row<float>(r), x.cols, inout.row<float>(index_at(index, r))); });
}

void CpuOps::gather_rows(Tensor x, Tensor index, Tensor out) {
  for_rows(out.rows, x.cols,
           [&](int64_t r) { std::copy_n(x.row<float>(index_at(index, r)), x.cols, out.row<float>(r)); });
}

void CpuOps::add_positions(Tensor table, Tensor taps, Tensor weights, Tensor inout) {
  for_rows(inout.rows, 4 * inout.cols, [&](int64_t r) {
    const float* w = weights.row<float>(r);
    const bf16* e[4];
    for (int t = 0; t < 4; ++t) e[t] = table.row<bf16>(index_at(taps, r, t));
    for (int64_t c = 0; c < inout.cols; ++c) {
      inout.row<float>(r)[c] +=
          w[0] * to_float(e[0][c]) + w[1] * to_float(e[1][c]) + w[2] * to_float(e[2][c]) + w[3] * to_float(e[3][c]);
    }
  });
}

void CpuOps::sample(Tensor logits, const Step& step) {
  for_rows(logits.rows, logits.cols, [&](int64_t r) {
    const float* row = logits.row<float>(r);
    int32_t best = 0;
    bool finite = true;
    for (int64_t c = 0; c < logits.cols; ++c) {
      finite &= std::isfinite(row[c]);
      if (row[c] > row[best]) best = static_cast<int32_t>(c);
    }
    step.sampled.row<int32_t>(r)[0] = finite ? best : -1;
  });
}

void CpuOps::advance(const Step& step) {
  for (int64_t r = 0; r < step.rows; ++r) {
    step.ids.row<int32_t>(r)[0] = std::max(0, index_at(step.sampled, r));
    for (int a = 0; a < 3; ++a) ++step.positions.row<int32_t>(r)[a];
    const int32_t index = step.lengths.row<int32_t>(r)[0]++;
    const int32_t* pages = step.page_table.row<int32_t>(index_at(step.sequences, r));
    const bool inside = index / kPageTokens < step.page_table.cols;
    step.slots.row<int32_t>(r)[0] = inside ? pages[index / kPageTokens] * kPageTokens + index % kPageTokens : 0;
  }
}

void CpuOps::route(Tensor logits, bool renormalize, Tensor ids, Tensor weights) {
  for_rows(logits.rows, 16 * logits.cols, [&](int64_t r) {
    const float* row = logits.row<float>(r);
    const float largest = *std::max_element(row, row + logits.cols);
    float total = 0, chosen = 0;
    for (int64_t e = 0; e < logits.cols; ++e) total += std::exp(row[e] - largest);
    int32_t* id = ids.row<int32_t>(r);
    float* weight = weights.row<float>(r);
    for (int64_t k = 0; k < ids.cols; ++k) {
      int32_t best = -1;
      for (int32_t e = 0; e < logits.cols; ++e) {
        if (std::find(id, id + k, e) == id + k && (best < 0 || row[e] > row[best])) best = e;
      }
      id[k] = best;
      weight[k] = std::exp(row[best] - largest) / total;
      chosen += weight[k];
    }
    for (int64_t k = 0; renormalize && k < ids.cols; ++k) weight[k] /= chosen;
  });
}

void CpuOps::experts(const Linear& gate_up, const Linear& down, Tensor x, Tensor ids, Tensor weights, Tensor scratch,
                     Tensor inout) {
  const int64_t n = down.in, k = ids.cols;
  const HostLinear& up = host(gate_up);
  pool_.run(x.rows * k, [&](int64_t item, int) {
    const int64_t r = item / k, group = index_at(ids, r, item % k);
    float* gate = scratch.row<float>(item);
    float* act = gate + 2 * n;
    multiply(k_, up, group, 0, up.out, x.row<float>(r), x.stride, 1, gate, 0);
    k_.silu_mul(gate, gate + n, n, act);
    multiply(k_, host(down), group, 0, down.out, act, 0, 1, act + n, 0);
  });
  for_rows(x.rows, k * inout.cols, [&](int64_t r) {
    for (int64_t c = 0; c < inout.cols; ++c) {
      float sum = 0;
      for (int64_t j = 0; j < k; ++j) sum += weights.row<float>(r)[j] * (scratch.row<float>(r * k + j) + 3 * n)[c];
      inout.row<float>(r)[c] += sum;
    }
  });
}

}  // namespace vireo::cpu
