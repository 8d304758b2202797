// SPDX-License-Identifier: Apache-2.0
#include "op_cases.h"

#include <fmt/format.h>

#include <cmath>
#include <deque>
#include <limits>
#include <random>

namespace vireo::testing_ops {
namespace {

// Inputs and outputs of one run on one backend. Host weights live as long as the run.
class Bench {
 public:
  Bench(Backend& backend, uint32_t seed) : backend_(backend), random_(seed) {}

  Backend& backend() { return backend_; }
  Ops& ops() { return backend_.ops(); }

  float normal(float scale = 1) { return scale * normal_(random_); }
  int32_t below(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint32_t>(n)); }

  // Random activations, rows `stride` apart when given.
  Tensor activations(int64_t rows, int64_t cols, float scale = 1, int64_t stride = 0) {
    std::vector<float> values(static_cast<size_t>(rows * cols));
    for (float& v : values) v = normal(scale);
    return put(values, rows, cols, stride);
  }

  Tensor poisoned(int64_t rows, int64_t cols, int64_t stride = 0) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    return put(std::vector<float>(static_cast<size_t>(rows * cols), nan), rows, cols, stride);
  }

  Tensor ints(const std::vector<int32_t>& values, int64_t rows, int64_t cols) {
    const Tensor t = keep(backend_.allocate(rows, cols, DType::kI32));
    backend_.upload(values.data(), t);
    return t;
  }

  Tensor floats(const std::vector<float>& values, int64_t rows, int64_t cols) {
    const Tensor t = keep(backend_.allocate(rows, cols, DType::kF32));
    backend_.upload(values.data(), t);
    return t;
  }

  HostTensor weight(std::vector<int64_t> shape, float scale) {
    HostTensor t{"w", DType::kBF16, std::move(shape), nullptr};
    auto& data = weights_.emplace_back(static_cast<size_t>(t.size()));
    for (bf16& v : data) v = to_bf16(normal(scale));
    t.data = data.data();
    return t;
  }

  std::unique_ptr<Linear> linear(const std::vector<int64_t>& outs, int64_t in, bool with_bias, const Role& role = {}) {
    std::vector<HostTensor> parts, biases;
    for (int64_t out : outs) {
      parts.push_back(weight({out, in}, 1 / std::sqrt(static_cast<float>(in))));
      if (with_bias) biases.push_back(weight({out}, 0.5f));
    }
    return backend_.place(parts, biases, role);
  }

  Norm norm(int64_t n, bool with_bias) {
    HostTensor w = weight({n}, 0.2f);
    Norm out{.weight = keep(backend_.place_vector(w)), .eps = 1e-6f};
    if (with_bias) out.bias = keep(backend_.place_vector(weight({n}, 0.2f)));
    return out;
  }

  Tensor table(int64_t rows, int64_t cols) { return keep(backend_.place_table(weight({rows, cols}, 1))); }

  // Every element as float, appended to what was taken before.
  void take(Tensor t) {
    const size_t n = static_cast<size_t>(t.size());
    std::vector<char> raw(n * size_of(t.dtype));
    backend_.download(t, raw.data());
    for (size_t i = 0; i < n; ++i) {
      if (t.dtype == DType::kF32) taken_.push_back(reinterpret_cast<const float*>(raw.data())[i]);
      if (t.dtype == DType::kBF16) taken_.push_back(to_float(reinterpret_cast<const bf16*>(raw.data())[i]));
      if (t.dtype == DType::kI32) taken_.push_back(static_cast<float>(reinterpret_cast<const int32_t*>(raw.data())[i]));
    }
  }
  std::vector<float> taken() { return std::move(taken_); }

  // A step of `rows` rows: sequence r has lengths[r] tokens in the cache when the row is seen, pages in shuffled order.
  Step step(const std::vector<int32_t>& lengths, bool one_sequence) {
    const int32_t sequences = one_sequence ? 1 : static_cast<int32_t>(lengths.size());
    int32_t pages = 1;
    for (int32_t n : lengths) pages = std::max(pages, (n + kPageTokens - 1) / kPageTokens);
    std::vector<int32_t> table(static_cast<size_t>(sequences * pages));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    std::shuffle(table.begin(), table.end(), random_);
    slots_ = int64_t{sequences} * pages * kPageTokens;
    std::vector<int32_t> sequence, slots;
    for (size_t r = 0; r < lengths.size(); ++r) {
      sequence.push_back(one_sequence ? 0 : static_cast<int32_t>(r));
      const int32_t index = lengths[r] - 1;
      slots.push_back(table[static_cast<size_t>(sequence[r] * pages + index / kPageTokens)] * kPageTokens +
                      index % kPageTokens);
    }
    const int64_t rows = static_cast<int64_t>(lengths.size());
    Step s;
    s.rows = rows;
    s.lengths = ints(lengths, rows, 1);
    s.sequences = ints(sequence, rows, 1);
    s.slots = ints(slots, rows, 1);
    s.page_table = ints(table, sequences, pages);
    return s;
  }

  // A cache for the last step's pages, every slot filled with random rows, so that reading a wrong one shows.
  KvLayer cache(const AttentionShape& shape) {
    caches_.push_back(backend_.allocate_kv(slots_, shape));
    const int64_t cols = int64_t{shape.kv_heads} * shape.head_dim;
    std::vector<int32_t> slots(static_cast<size_t>(slots_));
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i);
    Step all;
    all.rows = slots_;
    all.slots = ints(slots, slots_, 1);
    std::vector<float> k(static_cast<size_t>(slots_ * cols)), v(k.size());
    for (auto* values : {&k, &v}) {
      for (float& x : *values) x = to_float(to_bf16(normal()));
    }
    ops().append_kv(put(k, slots_, cols, 0), put(v, slots_, cols, 0), all, shape, caches_.back().view);
    return caches_.back().view;
  }

  // All rows of a cache, slot by slot.
  void take(KvLayer cache, const AttentionShape& shape) {
    const size_t cols = static_cast<size_t>(shape.kv_heads * shape.head_dim);
    for (int64_t slot = 0; slot < slots_; ++slot) {
      std::vector<float> rows(2 * cols);
      backend_.read_kv(cache, shape, slot, rows.data(), rows.data() + cols);
      taken_.insert(taken_.end(), rows.begin(), rows.end());
    }
  }

 private:
  Tensor keep(OwnedTensor t) {
    owned_.push_back(std::move(t));
    return owned_.back().view;
  }

  Tensor put(const std::vector<float>& values, int64_t rows, int64_t cols, int64_t stride) {
    const DType type = backend_.activation_type();
    Tensor t = keep(backend_.allocate(rows, std::max(cols, stride), type));
    t.cols = cols;
    upload(values, t);
    return t;
  }

  void upload(const std::vector<float>& values, Tensor t) {
    if (t.dtype == DType::kF32) return backend_.upload(values.data(), t);
    CHECK(t.dtype == DType::kBF16);
    std::vector<bf16> narrow;
    for (float v : values) narrow.push_back(to_bf16(v));
    backend_.upload(narrow.data(), t);
  }

  Backend& backend_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  std::deque<OwnedTensor> owned_;
  std::deque<OwnedKv> caches_;
  std::deque<std::vector<bf16>> weights_;
  std::vector<float> taken_;
  int64_t slots_ = 0;
};

using Cases = std::vector<OpCase>;

template <typename F>
void add(Cases& cases, const std::string& op, const std::string& shape, double tolerance, F body, bool fused = false) {
  cases.push_back({op, shape, tolerance, fused, [body](Backend& backend, uint32_t seed, Body which) {
                     Bench b(backend, seed);
                     body(b, which);
                     return b.taken();
                   }});
}

void add_linear(Cases& cases, int64_t rows, std::vector<int64_t> outs, int64_t in, bool bias) {
  int64_t out = 0;
  for (int64_t o : outs) out += o;
  const std::string shape =
      fmt::format("{}x{}x{}{}{}", rows, out, in, outs.size() > 1 ? "_stacked" : "", bias ? "_bias" : "");
  add(cases, "linear", shape, 3e-6, [=](Bench& b, Body) {
    const auto w = b.linear(outs, in, bias);
    const Tensor y = b.poisoned(rows, out, out + 3);
    b.ops().linear(*w, b.activations(rows, in, 1, in + 5), y);
    b.take(y);
  });
}

void add_linears(Cases& cases) {
  for (int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 17, 64, 130}) add_linear(cases, rows, {96}, 128, false);
  for (int64_t in : {1, 7, 72, 214, 255, 1000}) add_linear(cases, 3, {33}, in, true);
  for (int64_t out : {1, 2, 5, 63, 65, 257}) add_linear(cases, 6, {out}, 80, true);
  add_linear(cases, 1, {384, 128, 128}, 160, false);
  add_linear(cases, 70, {48, 16, 16}, 304, true);
  add_linear(cases, 1, {2048}, 2048, false);
  add_linear(cases, 40, {512}, 2048, false);
}

void add_norms(Cases& cases) {
  for (int64_t rows : {1, 5, 33}) {
    for (int64_t cols : {72, 128, 160, 1024}) {
      add(cases, "rms_norm", fmt::format("{}x{}", rows, cols), 2e-6, [=](Bench& b, Body) {
        const Tensor y = b.poisoned(rows, cols);
        b.ops().rms_norm(b.activations(rows, cols, 3), b.norm(cols, false), y);
        b.take(y);
      });
      add(cases, "layer_norm", fmt::format("{}x{}", rows, cols), 2e-6, [=](Bench& b, Body) {
        const Tensor y = b.poisoned(rows, cols);
        b.ops().layer_norm(b.activations(rows, cols, 3), b.norm(cols, true), y);
        b.take(y);
      });
    }
  }
  add(cases, "rms_norm", "per_head_in_place", 2e-6, [](Bench& b, Body) {
    const Tensor x = b.activations(5, 3 * 128, 2, 500);
    b.ops().rms_norm(x, b.norm(128, false), x);
    b.take(x);
  });
  // A constant row: the eps decides.
  add(cases, "rms_norm", "tiny_values", 2e-6, [](Bench& b, Body) {
    const Tensor y = b.poisoned(2, 64);
    b.ops().rms_norm(b.activations(2, 64, 1e-4f), b.norm(64, false), y);
    b.take(y);
  });
}

void add_rope(Cases& cases) {
  for (int head_dim : {8, 64, 72, 128}) {
    for (int64_t rows : {1, 19}) {
      add(cases, "rope", fmt::format("{}_rows_of_{}", rows, head_dim), 2e-6, [=](Bench& b, Body) {
        const int64_t n = head_dim / 2;
        std::vector<int32_t> positions, axis;
        std::vector<float> inv;
        for (int64_t i = 0; i < rows * 3; ++i) positions.push_back(b.below(300));
        for (int64_t j = 0; j < n; ++j) {
          axis.push_back(static_cast<int32_t>(j % 3));
          inv.push_back(std::pow(1e4f, -static_cast<float>(j) / static_cast<float>(n)));
        }
        const Tensor cos_sin = b.floats(std::vector<float>(static_cast<size_t>(rows * 2 * n)), rows, 2 * n);
        b.ops().rope_angles(b.ints(positions, rows, 3), {b.floats(inv, 1, n), b.ints(axis, 1, n)}, cos_sin);
        const Tensor x = b.activations(rows, 3 * head_dim, 1, 4 * head_dim);
        b.ops().rope(x, cos_sin, head_dim);
        b.take(cos_sin);
        b.take(x);
      });
    }
  }
}

void add_attention(Cases& cases) {
  struct Shape {
    int heads, kv_heads, head_dim;
  };
  for (const Shape s : {Shape{3, 1, 128}, Shape{4, 2, 128}, Shape{2, 2, 72}, Shape{16, 2, 64}}) {
    const AttentionShape shape{s.heads, s.kv_heads, s.head_dim, 1 / std::sqrt(static_cast<float>(s.head_dim))};
    const auto attend = [=](const std::vector<int32_t>& lengths, bool one) {
      return [=](Bench& b, Body) {
        const Step step = b.step(lengths, one);
        const int64_t rows = step.rows, cols = int64_t{s.heads} * s.head_dim;
        const KvLayer cache = b.cache(shape);
        const Tensor out = b.poisoned(rows, cols);
        b.ops().attend_cache(b.activations(rows, cols, 2, cols + 256), step, cache, shape, out);
        b.take(out);
      };
    };
    const std::string name = fmt::format("{}q_{}kv_{}", s.heads, s.kv_heads, s.head_dim);
    for (int32_t length : {1, 2, 63, 64, 65, 200, 1581}) {
      add(cases, "attend_cache", fmt::format("{}_decode_at_{}", name, length), 5e-6, attend({length}, true));
    }
    add(cases, "attend_cache", name + "_batch", 5e-6, attend({5, 130, 64, 1}, false));
    std::vector<int32_t> chunk;
    for (int32_t i = 0; i < 77; ++i) chunk.push_back(60 + i);
    add(cases, "attend_cache", name + "_chunk", 5e-6, attend(chunk, true));
  }
  for (const Shape s : {Shape{2, 2, 64}, Shape{1, 1, 72}, Shape{3, 3, 16}}) {
    for (const std::vector<int32_t>& bounds : {std::vector<int32_t>{0, 1}, {0, 100}, {0, 24, 48, 72}, {0, 5, 134}}) {
      std::string shape = fmt::format("{}x{}", s.heads, s.head_dim);
      for (size_t i = 1; i < bounds.size(); ++i) shape += fmt::format("_{}", bounds[i]);
      add(cases, "attend_spans", shape, 5e-6, [=](Bench& b, Body) {
        const int64_t rows = bounds.back(), cols = int64_t{s.heads} * s.head_dim;
        const Tensor qkv = b.activations(rows, 3 * cols, 1.5f);
        const Tensor out = b.poisoned(rows, cols);
        const Spans spans{bounds.data(), static_cast<int64_t>(bounds.size()) - 1};
        const AttentionShape a{s.heads, s.heads, s.head_dim, 1 / std::sqrt(static_cast<float>(s.head_dim))};
        b.ops().attend_spans(qkv.slice_cols(0, cols), qkv.slice_cols(cols, cols), qkv.slice_cols(2 * cols, cols), spans,
                             a, out);
        b.take(out);
      });
    }
  }
}

void add_elementwise(Cases& cases) {
  for (int64_t cols : {1, 31, 304, 640}) {
    add(cases, "silu_mul", fmt::format("5x{}", cols), 3e-6, [=](Bench& b, Body) {
      const Tensor y = b.poisoned(5, cols);
      b.ops().silu_mul(b.activations(5, 2 * cols, 4), y);
      b.take(y);
    });
    for (const Gelu kind : {Gelu::kTanh, Gelu::kErf}) {
      add(cases, "gelu", fmt::format("{}_5x{}", kind == Gelu::kTanh ? "tanh" : "erf", cols), 3e-6, [=](Bench& b, Body) {
        const Tensor x = b.activations(5, cols, 3);
        b.ops().gelu(x, kind);
        b.take(x);
      });
    }
    add(cases, "add", fmt::format("5x{}", cols), 1e-7, [=](Bench& b, Body) {
      const Tensor y = b.activations(5, cols);
      b.ops().add(b.activations(5, cols), y);
      b.take(y);
    });
  }
  // Where exp would overflow.
  add(cases, "silu_mul", "extremes", 3e-6, [](Bench& b, Body) {
    const Tensor y = b.poisoned(1, 600);
    b.ops().silu_mul(b.activations(1, 1200, 80), y);
    b.take(y);
  });
  for (const Gelu kind : {Gelu::kTanh, Gelu::kErf}) {
    add(cases, "gelu", fmt::format("{}_extremes", kind == Gelu::kTanh ? "tanh" : "erf"), 3e-6, [=](Bench& b, Body) {
      const Tensor x = b.activations(1, 600, 40);
      b.ops().gelu(x, kind);
      b.take(x);
    });
  }
}

void add_rows(Cases& cases) {
  for (int64_t cols : {72, 256}) {
    add(cases, "embed", fmt::format("9x{}", cols), 0, [=](Bench& b, Body) {
      const auto w = b.linear({50}, cols, false);
      std::vector<int32_t> ids;
      for (int i = 0; i < 9; ++i) ids.push_back(b.below(50));
      Step step;
      step.ids = b.ints(ids, 9, 1);
      const Tensor out = b.poisoned(9, cols);
      b.ops().embed(*w, step, out);
      b.take(out);
    });
    add(cases, "put_add_gather_rows", fmt::format("12x{}", cols), 1e-7, [=](Bench& b, Body) {
      const Tensor x = b.activations(12, cols), rows = b.activations(4, cols), out = b.poisoned(3, cols);
      b.ops().put_rows(rows, b.ints({0, 3, 7, 11}, 4, 1), x);
      b.ops().add_rows(rows, b.ints({11, 2, 5, 0}, 4, 1), x);
      b.ops().gather_rows(x, b.ints({11, 0, 4}, 3, 1), out);
      b.take(x);
      b.take(out);
    });
    add(cases, "add_positions", fmt::format("10x{}", cols), 1e-6, [=](Bench& b, Body) {
      std::vector<int32_t> taps;
      std::vector<float> weights;
      for (int i = 0; i < 40; ++i) {
        taps.push_back(b.below(25));
        weights.push_back(std::fabs(b.normal(0.3f)));
      }
      const Tensor x = b.activations(10, cols);
      b.ops().add_positions(b.table(25, cols), b.ints(taps, 10, 4), b.floats(weights, 10, 4), x);
      b.take(x);
    });
  }
  add(cases, "normalize_pixels", "7x48", 1e-6, [](Bench& b, Body) {
    std::vector<uint8_t> bytes(7 * 48);
    for (uint8_t& v : bytes) v = static_cast<uint8_t>(b.below(256));
    const OwnedTensor t = b.backend().allocate(7, 48, DType::kU8);
    b.backend().upload(bytes.data(), t.view);
    const Tensor out = b.poisoned(7, 48);
    b.ops().normalize_pixels(t.view, {{127.5f, 120, 100}, {127.5f, 60, 70}}, out);
    b.take(out);
  });
}

void add_steps(Cases& cases) {
  for (int64_t vocab : {7, 1088}) {
    add(cases, "sample_advance", fmt::format("3x{}", vocab), 0, [=](Bench& b, Body) {
      Step step = b.step({5, 64, 70}, false);
      step.ids = b.ints({0, 0, 0}, 3, 1);
      step.positions = b.ints({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3, 3);
      step.sampled = b.ints({-9, -9, -9}, 3, 1);
      // Ties go to the lowest id: values are few.
      std::vector<float> logits;
      for (int64_t i = 0; i < 3 * vocab; ++i) logits.push_back(static_cast<float>(b.below(4)));
      const Tensor t = b.activations(3, vocab);
      if (t.dtype == DType::kF32) b.backend().upload(logits.data(), t);
      b.ops().sample(t, step);
      b.take(step.sampled);
      b.ops().advance(step);
      for (const Tensor& state : {step.ids, step.positions, step.lengths, step.slots}) b.take(state);
    });
  }
  add(cases, "sample", "not_finite", 0, [](Bench& b, Body) {
    Step step;
    step.sampled = b.ints({7, 7}, 2, 1);
    const Tensor t = b.activations(2, 9);
    std::vector<float> logits(18, 1.0f);
    logits[4] = std::numeric_limits<float>::quiet_NaN();
    logits[9 + 3] = std::numeric_limits<float>::infinity();
    if (t.dtype == DType::kF32) b.backend().upload(logits.data(), t);
    b.ops().sample(t, step);
    b.take(step.sampled);
  });
}

void add_moe(Cases& cases) {
  for (const bool renormalize : {true, false}) {
    add(cases, "route", renormalize ? "renormalized" : "plain", 2e-6, [=](Bench& b, Body) {
      const Tensor ids = b.ints(std::vector<int32_t>(15, -1), 5, 3),
                   weights = b.floats(std::vector<float>(15, NAN), 5, 3);
      b.ops().route(b.activations(5, 16, 2), renormalize, ids, weights);
      b.take(ids);
      b.take(weights);
    });
  }
  for (const ExpertLayout layout : {ExpertLayout::kOutIn, ExpertLayout::kInOut}) {
    for (int64_t rows : {1, 6, 40}) {
      add(cases, "experts", fmt::format("{}_rows_{}", rows, layout == ExpertLayout::kOutIn ? "out_in" : "in_out"), 5e-6,
          [=](Bench& b, Body) {
            const int64_t h = 56, im = 32, k = 2;
            const bool turned = layout == ExpertLayout::kInOut;
            std::vector<std::vector<HostTensor>> up, down;
            for (int e = 0; e < 5; ++e) {
              up.push_back(
                  {b.weight(turned ? std::vector<int64_t>{h, 2 * im} : std::vector<int64_t>{2 * im, h}, 0.15f)});
              down.push_back({b.weight(turned ? std::vector<int64_t>{im, h} : std::vector<int64_t>{h, im}, 0.2f)});
            }
            const auto up_linear = b.backend().place_experts(up, layout, {0, "gate_up"});
            const auto down_linear = b.backend().place_experts(down, layout, {0, "mlp_down"});
            std::vector<int32_t> ids;
            std::vector<float> weights;
            for (int64_t i = 0; i < rows * k; ++i) {
              ids.push_back(i % k == 0 ? b.below(3) : 3 + b.below(2));
              weights.push_back(0.5f);
            }
            const Tensor x = b.activations(rows, h);
            const int64_t width = 3 * im + h;
            const Tensor scratch =
                b.floats(std::vector<float>(static_cast<size_t>(rows * k * width), NAN), rows * k, width);
            b.ops().experts(*up_linear, *down_linear, b.activations(rows, h), b.ints(ids, rows, k),
                            b.floats(weights, rows, k), scratch, x);
            b.take(x);
          });
    }
  }
}

void add_fused(Cases& cases) {
  for (int64_t rows : {1, 3, 8, 33}) {
    add(
        cases, "linear_add", fmt::format("{}x65x214", rows), 3e-6,
        [=](Bench& b, Body body) {
          const auto w = b.linear({65}, 214, true);
          const Tensor x = b.activations(rows, 214), y = b.activations(rows, 65), scratch = b.poisoned(rows, 65);
          if (body == Body::kOwn) {
            b.ops().linear_add(*w, x, scratch, y);
          } else {
            b.ops().Ops::linear_add(*w, x, scratch, y);
          }
          b.take(y);
        },
        true);
    add(
        cases, "gate_up", fmt::format("{}x304x160", rows), 3e-6,
        [=](Bench& b, Body body) {
          const auto w = b.linear({304, 304}, 160, false, {0, "gate_up"});
          const Tensor x = b.activations(rows, 160), y = b.poisoned(rows, 304), scratch = b.poisoned(rows, 608);
          if (body == Body::kOwn) {
            b.ops().gate_up(*w, x, scratch, y);
          } else {
            b.ops().Ops::gate_up(*w, x, scratch, y);
          }
          b.take(y);
        },
        true);
    for (const Gelu kind : {Gelu::kTanh, Gelu::kErf}) {
      add(
          cases, "linear_gelu", fmt::format("{}_{}x214x72", kind == Gelu::kTanh ? "tanh" : "erf", rows), 3e-6,
          [=](Bench& b, Body body) {
            const auto w = b.linear({214}, 72, true);
            const Tensor x = b.activations(rows, 72), y = b.poisoned(rows, 214);
            if (body == Body::kOwn) {
              b.ops().linear_gelu(*w, x, kind, y);
            } else {
              b.ops().Ops::linear_gelu(*w, x, kind, y);
            }
            b.take(y);
          },
          true);
    }
    add(
        cases, "norm_rope_append", fmt::format("{}_rows", rows), 3e-6,
        [=](Bench& b, Body body) {
          const AttentionShape shape{3, 1, 128, 1};
          std::vector<int32_t> lengths;
          for (int64_t r = 0; r < rows; ++r) lengths.push_back(static_cast<int32_t>(40 + r));
          const Step step = b.step(lengths, true);
          const KvLayer cache = b.cache(shape);
          const Tensor qkv = b.activations(rows, 5 * 128, 2),
                       cos_sin = b.floats(std::vector<float>(static_cast<size_t>(rows) * 128, 0.6f), rows, 128);
          const Norm q_norm = b.norm(128, false), k_norm = b.norm(128, false);
          if (body == Body::kOwn) {
            b.ops().norm_rope_append(qkv, q_norm, k_norm, cos_sin, step, shape, cache);
          } else {
            b.ops().Ops::norm_rope_append(qkv, q_norm, k_norm, cos_sin, step, shape, cache);
          }
          b.take(qkv.slice_cols(0, 3 * 128));
          b.take(cache, shape);
        },
        true);
  }
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const Cases cases = [] {
    Cases c;
    add_linears(c);
    add_norms(c);
    add_rope(c);
    add_attention(c);
    add_elementwise(c);
    add_rows(c);
    add_steps(c);
    add_moe(c);
    add_fused(c);
    return c;
  }();
  return cases;
}

}  // namespace vireo::testing_ops
