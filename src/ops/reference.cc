// SPDX-License-Identifier: Apache-2.0
#include "ops/reference.h"

#include <algorithm>
#include <cmath>

#include "ops/host_memory.h"

namespace vireo {
namespace {

const HostLinear& host(const Linear& w) {
  return static_cast<const HostLinear&>(w);
}

int32_t index_at(Tensor t, int64_t r, int64_t c = 0) {
  return t.row<int32_t>(r)[c];
}

double dot(const WeightMatrix& m, int64_t o, const float* x) {
  const bf16* w = m.data + o * m.out_stride;
  double sum = 0;
  for (int64_t i = 0; i < m.in; ++i) sum += double{to_float(w[i * m.in_stride])} * x[i];
  return sum;
}

// Of a row that the checkpoint has in codes alone.
double dot_decoded(const std::vector<WeightMatrix>& parts, int64_t o, const float* x) {
  const int64_t in = parts[0].in;
  std::vector<bf16> row(static_cast<size_t>(in));
  gather_rows(parts, o, 1, row.data());
  return dot({row.data(), 1, in, in}, 0, x);
}

// With a tier for decode steps; kBf16: none.
class ReferenceLinear : public HostLinear {
 public:
  ReferenceLinear(const HostLinear& rows, const Role& role)
      : HostLinear(rows), tier(role.tier), codes_alone(role.codes_alone) {}
  const Tier tier;
  const bool codes_alone;
  std::vector<float> tier_rows;  // their values, [groups][out][in], where the checkpoint has no codes
};

// y[o] = W x + b of one group.
void multiply(const HostLinear& w, int64_t group, const float* x, float* y) {
  int64_t first = 0;
  const auto& parts = w.parts[static_cast<size_t>(group)];
  for (const WeightMatrix& m : parts) {
    for (int64_t o = 0; o < m.out; ++o) {
      const double b = w.bias.empty() ? 0.0 : w.bias[static_cast<size_t>(first + o)];
      y[first + o] = static_cast<float>((m.data ? dot(m, o, x) : dot_decoded(parts, first + o, x)) + b);
    }
    first += m.out;
  }
}

// The values of a row in a tier.
void decode_tier_row(const HostLinear& w, Tier tier, int64_t group, int64_t o, float* values) {
  std::vector<uint8_t> codes(static_cast<size_t>(code_bytes(tier, w.in)));
  std::vector<bf16> scales(static_cast<size_t>(tier_groups(w.in)));
  tier_rows(w.parts[static_cast<size_t>(group)], tier, o, 1, codes.data(), scales.data());
  dequantize_row(tier, codes.data(), scales.data(), w.in, values);
}

// The same with rows of a tier.
void multiply_tier(const ReferenceLinear& w, int64_t group, const float* x, float* y) {
  std::vector<float> decoded(static_cast<size_t>(w.in));
  for (int64_t o = 0; o < w.out; ++o) {
    if (w.tier_rows.empty()) decode_tier_row(w, w.tier, group, o, decoded.data());
    const float* row = w.tier_rows.empty() ? decoded.data() : w.tier_rows.data() + (group * w.out + o) * w.in;
    double sum = w.bias.empty() ? 0.0 : w.bias[static_cast<size_t>(o)];
    for (int64_t i = 0; i < w.in; ++i) sum += double{row[i]} * x[i];
    y[o] = static_cast<float>(sum);
  }
}

float silu(float x) {
  return x / (1.0f + std::exp(-x));
}

// Softmax attention of one query head over n keys given by `key(j)` and `value(j)`.
template <typename Key, typename Value>
void attend(const float* q, int64_t n, int head_dim, float scale, Key key, Value value, float* out) {
  std::vector<double> p(static_cast<size_t>(n));
  double largest = -INFINITY, total = 0;
  for (int64_t j = 0; j < n; ++j) {
    double s = 0;
    for (int d = 0; d < head_dim; ++d) s += double{q[d]} * key(j)[d];
    p[static_cast<size_t>(j)] = s * scale;
    largest = std::max(largest, p[static_cast<size_t>(j)]);
  }
  for (double& v : p) total += v = std::exp(v - largest);
  std::vector<double> sum(static_cast<size_t>(head_dim));
  for (int64_t j = 0; j < n; ++j) {
    for (int d = 0; d < head_dim; ++d) sum[static_cast<size_t>(d)] += p[static_cast<size_t>(j)] * value(j)[d];
  }
  for (int d = 0; d < head_dim; ++d) out[d] = static_cast<float>(sum[static_cast<size_t>(d)] / total);
}

// Floats, or with scales what the codes stand for.
void append_row(const float* row, int64_t slot, const AttentionShape& shape, Tensor cache, Tensor scales) {
  float* to = cache.row<float>(slot);
  std::copy_n(row, cache.cols, to);
  if (!scales.data) return;
  const int64_t n = shape.head_dim;
  std::vector<int8_t> codes(static_cast<size_t>(n));
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    scales.row<bf16>(slot)[h] = quantize_kv(row + h * n, n, codes.data());
    const float scale = to_float(scales.row<bf16>(slot)[h]);
    for (int64_t i = 0; i < n; ++i) to[h * n + i] = static_cast<float>(codes[static_cast<size_t>(i)]) * scale;
  }
}

class ReferenceOps : public Ops {
 public:
  void embed(const Linear& table, const Step& step, Tensor out) override {
    const WeightMatrix& m = host(table).parts[0][0];
    for (int64_t r = 0; r < out.rows; ++r) {
      const bf16* from = m.data + index_at(step.ids, r) * m.out_stride;
      for (int64_t c = 0; c < out.cols; ++c) out.row<float>(r)[c] = to_float(from[c]);
    }
  }

  void normalize_pixels(Tensor bytes, const PixelScale& scale, Tensor out) override {
    const int64_t per_channel = bytes.cols / 3;
    for (int64_t r = 0; r < bytes.rows; ++r) {
      for (int64_t c = 0; c < bytes.cols; ++c) {
        const int64_t channel = c / per_channel;
        out.row<float>(r)[c] =
            (static_cast<float>(bytes.row<uint8_t>(r)[c]) - scale.mean[channel]) / scale.std[channel];
      }
    }
  }

  void begin_step(bool decode) override { decodes_ = decode; }

  void linear(const Linear& w, Tensor x, Tensor out) override {
    for (int64_t r = 0; r < x.rows; ++r) multiply_group(w, 0, x.row<float>(r), out.row<float>(r));
  }

  void rms_norm(Tensor x, const Norm& norm, Tensor out) override {
    const int64_t n = norm.weight.cols;
    const float* w = norm.weight.row<float>(0);
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t first = 0; first < x.cols; first += n) {
        const float* from = x.row<float>(r) + first;
        float* to = out.row<float>(r) + first;
        double squares = 0;
        for (int64_t i = 0; i < n; ++i) squares += double{from[i]} * from[i];
        const double scale = 1.0 / std::sqrt(squares / static_cast<double>(n) + norm.eps);
        for (int64_t i = 0; i < n; ++i) to[i] = w[i] * static_cast<float>(from[i] * scale);
      }
    }
  }

  void layer_norm(Tensor x, const Norm& norm, Tensor out) override {
    const double n = static_cast<double>(x.cols);
    for (int64_t r = 0; r < x.rows; ++r) {
      const float* from = x.row<float>(r);
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < x.cols; ++i) sum += from[i];
      const double mean = sum / n;
      for (int64_t i = 0; i < x.cols; ++i) squares += (from[i] - mean) * (from[i] - mean);
      const double scale = 1.0 / std::sqrt(squares / n + norm.eps);
      for (int64_t i = 0; i < x.cols; ++i) {
        const double y = (from[i] - mean) * scale * norm.weight.row<float>(0)[i];
        out.row<float>(r)[i] = static_cast<float>(y + norm.bias.row<float>(0)[i]);
      }
    }
  }

  void rope_angles(Tensor positions, const RopeTable& table, Tensor cos_sin) override {
    const int64_t n = table.inv_freq.cols;
    for (int64_t r = 0; r < positions.rows; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        const int32_t position = index_at(positions, r, table.axis.row<int32_t>(0)[j]);
        const float angle = static_cast<float>(position) * table.inv_freq.row<float>(0)[j];
        cos_sin.row<float>(r)[j] = std::cos(angle);
        cos_sin.row<float>(r)[n + j] = std::sin(angle);
      }
    }
  }

  void rope(Tensor x, Tensor cos_sin, int head_dim) override {
    const int64_t n = head_dim / 2;
    for (int64_t r = 0; r < x.rows; ++r) {
      const float* cosine = cos_sin.row<float>(r);
      const float* sine = cosine + n;
      for (int64_t first = 0; first < x.cols; first += head_dim) {
        float* head = x.row<float>(r) + first;
        for (int64_t j = 0; j < n; ++j) {
          const float a = head[j], b = head[n + j];
          head[j] = a * cosine[j] - b * sine[j];
          head[n + j] = b * cosine[j] + a * sine[j];
        }
      }
    }
  }

  void append_kv(Tensor k, Tensor v, const Step& step, const AttentionShape& shape, KvLayer cache) override {
    for (int64_t r = 0; r < k.rows; ++r) {
      const int64_t slot = index_at(step.slots, r);
      if (slot < 0) continue;
      append_row(k.row<float>(r), slot, shape, cache.k, cache.k_scales);
      append_row(v.row<float>(r), slot, shape, cache.v, cache.v_scales);
    }
  }

  void attend_cache(Tensor q, const Step& step, KvLayer cache, const AttentionShape& shape, Tensor out) override {
    const int group = shape.heads / shape.kv_heads;
    for (int64_t r = 0; r < q.rows; ++r) {
      const int32_t* pages = step.page_table.row<int32_t>(index_at(step.sequences, r));
      const auto slot = [&](int64_t j) { return int64_t{pages[j / kPageTokens]} * kPageTokens + j % kPageTokens; };
      for (int h = 0; h < shape.heads; ++h) {
        const int64_t column = int64_t{h / group} * shape.head_dim;
        const int64_t first = int64_t{h} * shape.head_dim;
        attend(
            q.row<float>(r) + first, index_at(step.lengths, r), shape.head_dim, shape.scale,
            [&](int64_t j) { return cache.k.row<float>(slot(j)) + column; },
            [&](int64_t j) { return cache.v.row<float>(slot(j)) + column; }, out.row<float>(r) + first);
      }
    }
  }

  void attend_spans(Tensor q, Tensor k, Tensor v, Spans spans, const AttentionShape& shape, Tensor out) override {
    for (int64_t s = 0; s < spans.count; ++s) {
      const int64_t begin = spans.bounds[s], n = spans.bounds[s + 1] - begin;
      for (int64_t r = begin; r < begin + n; ++r) {
        for (int h = 0; h < shape.heads; ++h) {
          const int64_t first = int64_t{h} * shape.head_dim;
          attend(
              q.row<float>(r) + first, n, shape.head_dim, shape.scale,
              [&](int64_t j) { return k.row<float>(begin + j) + first; },
              [&](int64_t j) { return v.row<float>(begin + j) + first; }, out.row<float>(r) + first);
        }
      }
    }
  }

  void silu_mul(Tensor x, Tensor out) override {
    for (int64_t r = 0; r < out.rows; ++r) {
      const float* gate = x.row<float>(r);
      for (int64_t c = 0; c < out.cols; ++c) out.row<float>(r)[c] = silu(gate[c]) * gate[out.cols + c];
    }
  }

  void gelu(Tensor x, Gelu kind) override {
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t c = 0; c < x.cols; ++c) {
        float& v = x.row<float>(r)[c];
        const double d = v;
        const double t =
            kind == Gelu::kErf ? std::erf(d * M_SQRT1_2) : std::tanh(std::sqrt(2 / M_PI) * (d + 0.044715 * d * d * d));
        v = static_cast<float>(0.5 * d * (1 + t));
      }
    }
  }

  void add(Tensor x, Tensor inout) override {
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t c = 0; c < x.cols; ++c) inout.row<float>(r)[c] += x.row<float>(r)[c];
    }
  }

  void add_rows(Tensor x, Tensor index, Tensor inout) override {
    for (int64_t r = 0; r < x.rows; ++r) {
      float* to = inout.row<float>(index_at(index, r));
      for (int64_t c = 0; c < x.cols; ++c) to[c] += x.row<float>(r)[c];
    }
  }

  void put_rows(Tensor x, Tensor index, Tensor inout) override {
    for (int64_t r = 0; r < x.rows; ++r) std::copy_n(x.row<float>(r), x.cols, inout.row<float>(index_at(index, r)));
  }

  void gather_rows(Tensor x, Tensor index, Tensor out) override {
    for (int64_t r = 0; r < out.rows; ++r) std::copy_n(x.row<float>(index_at(index, r)), x.cols, out.row<float>(r));
  }

  void add_positions(Tensor table, Tensor taps, Tensor weights, Tensor inout) override {
    for (int64_t r = 0; r < inout.rows; ++r) {
      for (int64_t c = 0; c < inout.cols; ++c) {
        float sum = 0;
        for (int t = 0; t < 4; ++t) {
          sum += weights.row<float>(r)[t] * to_float(table.row<bf16>(index_at(taps, r, t))[c]);
        }
        inout.row<float>(r)[c] += sum;
      }
    }
  }

  void sample(Tensor logits, const Step& step) override {
    for (int64_t r = 0; r < logits.rows; ++r) {
      const float* row = logits.row<float>(r);
      const bool finite = std::all_of(row, row + logits.cols, [](float v) { return std::isfinite(v); });
      const int32_t best = static_cast<int32_t>(std::max_element(row, row + logits.cols) - row);
      step.sampled.row<int32_t>(r)[0] = finite ? best : -1;
    }
  }

  void advance(const Step& step) override { advance_host_step(step); }

  void route(Tensor logits, bool renormalize, Tensor ids, Tensor weights) override {
    std::vector<double> p(static_cast<size_t>(logits.cols));
    for (int64_t r = 0; r < logits.rows; ++r) {
      const float* row = logits.row<float>(r);
      const double largest = *std::max_element(row, row + logits.cols);
      double total = 0, chosen = 0;
      for (size_t e = 0; e < p.size(); ++e) total += p[e] = std::exp(row[e] - largest);
      for (int64_t k = 0; k < ids.cols; ++k) {
        const auto best = std::max_element(p.begin(), p.end());
        ids.row<int32_t>(r)[k] = static_cast<int32_t>(best - p.begin());
        weights.row<float>(r)[k] = static_cast<float>(*best / total);
        chosen += *best / total;
        *best = -1;
      }
      if (!renormalize) continue;
      for (int64_t k = 0; k < ids.cols; ++k) {
        weights.row<float>(r)[k] = static_cast<float>(weights.row<float>(r)[k] / chosen);
      }
    }
  }

  void experts(const Linear& gate_up, const Linear& down, Tensor x, Tensor ids, Tensor weights, Tensor scratch,
               Tensor inout) override {
    const int64_t n = down.in;
    for (int64_t r = 0; r < x.rows; ++r) {
      float* gate = scratch.row<float>(r);
      float* act = gate + 2 * n;
      float* y = act + n;
      std::vector<double> sum(static_cast<size_t>(down.out));
      for (int64_t k = 0; k < ids.cols; ++k) {
        multiply_group(gate_up, index_at(ids, r, k), x.row<float>(r), gate);
        for (int64_t i = 0; i < n; ++i) act[i] = silu(gate[i]) * gate[n + i];
        multiply_group(down, index_at(ids, r, k), act, y);
        for (size_t c = 0; c < sum.size(); ++c) sum[c] += double{weights.row<float>(r)[k]} * y[c];
      }
      for (size_t c = 0; c < sum.size(); ++c) inout.row<float>(r)[c] += static_cast<float>(sum[c]);
    }
  }

 private:
  void multiply_group(const Linear& w, int64_t group, const float* x, float* y) const {
    const auto& placed = static_cast<const ReferenceLinear&>(w);
    if (placed.tier != Tier::kBf16 && (decodes_ || placed.codes_alone)) return multiply_tier(placed, group, x, y);
    multiply(placed, group, x, y);
  }

  bool decodes_ = false;
};

class ReferenceBackend : public HostBackend {
 public:
  std::string name() const override { return "reference"; }
  std::string description() const override { return "plain float32 loops, one thread"; }
  DType activation_type() const override { return DType::kF32; }
  DType kv_type() const override { return DType::kF32; }
  Ops& ops() override { return ops_; }
  void set_cancel(const std::atomic<bool>*) override {}

  OwnedKv allocate_kv(int64_t slots, const AttentionShape& shape, KvMode mode) override {
    const int64_t cols = int64_t{shape.kv_heads} * shape.head_dim;
    OwnedKv kv{{}, allocate(slots, cols, DType::kF32), allocate(slots, cols, DType::kF32)};
    if (mode == KvMode::kInt8) {
      kv.k_scales = allocate(slots, shape.kv_heads, DType::kBF16);
      kv.v_scales = allocate(slots, shape.kv_heads, DType::kBF16);
    }
    kv.view = {kv.k.view, kv.v.view, kv.k_scales.view, kv.v_scales.view};
    for (Tensor t : {kv.view.k, kv.view.v}) std::fill_n(t.row<float>(0), t.size(), 0.0f);
    return kv;
  }
  void read_kv(KvLayer cache, const AttentionShape&, int64_t slot, float* k, float* v) override {
    std::copy_n(cache.k.row<float>(slot), cache.k.cols, k);
    std::copy_n(cache.v.row<float>(slot), cache.v.cols, v);
  }

  std::unique_ptr<Linear> place(const std::vector<HostTensor>& parts, const std::vector<HostTensor>& biases,
                                const Role& role) override {
    return in_tier(*make_host_linear(parts, biases, role), role);
  }
  std::unique_ptr<Linear> place_experts(const std::vector<std::vector<HostTensor>>& experts, ExpertLayout layout,
                                        const Role& role) override {
    return in_tier(*make_host_experts(experts, layout, role), role);
  }

 private:
  static std::unique_ptr<Linear> in_tier(const HostLinear& host, const Role& role) {
    auto w = std::make_unique<ReferenceLinear>(host, role);
    if (role.tier == Tier::kBf16 || !role.coded.empty()) return w;
    w->tier_rows.resize(static_cast<size_t>(w->groups * w->out * w->in));
    for (int64_t i = 0; i < w->groups * w->out; ++i)
      decode_tier_row(*w, role.tier, i / w->out, i % w->out, &w->tier_rows[static_cast<size_t>(i * w->in)]);
    return w;
  }

  ReferenceOps ops_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace vireo
