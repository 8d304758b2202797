// SPDX-License-Identifier: Apache-2.0
#include "op_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "op_bench.h"

namespace vireo::testing_ops {
namespace {

using Cases = std::vector<OpCase>;

template <typename F>
void add(Cases& cases, OpCase one, F body) {
  one.run = [body](Backend& backend, uint32_t seed, Body which) {
    Bench b(backend, seed);
    body(b, which);
    return b.taken();
  };
  cases.push_back(std::move(one));
}

// Outputs of products, which may be of either type.
Tensor output(Bench& b, bool residual, int64_t rows, int64_t cols, int64_t stride = 0) {
  return residual ? b.poisoned_residuals(rows, cols, stride) : b.poisoned(rows, cols, stride);
}

void add_linear(Cases& cases, int64_t rows, std::vector<int64_t> outs, int64_t in, bool bias, bool residual = false) {
  int64_t out = 0;
  for (int64_t o : outs) out += o;
  const std::string shape = fmt::format("{}x{}x{}{}{}{}", rows, out, in, outs.size() > 1 ? "_stacked" : "",
                                        bias ? "_bias" : "", residual ? "_to_residuals" : "");
  add(cases, {.op = "linear", .shape = shape, .tolerance = 3e-6, .residual = residual}, [=](Bench& b, Body) {
    const auto w = b.linear(outs, in, bias);
    const Tensor y = output(b, residual, rows, out, out + 3);
    b.ops().linear(*w, b.activations(rows, in, 1, in + 5), y);
    b.take(y);
  });
}

void add_linears(Cases& cases) {
  for (int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 17, 64, 130}) add_linear(cases, rows, {96}, 128, false);
  for (int64_t in : {1, 7, 72, 214, 255, 1000}) add_linear(cases, 3, {33}, in, true);
  for (int64_t out : {1, 2, 5, 63, 65, 257}) add_linear(cases, 6, {out}, 80, true);
  add_linear(cases, 40, {512}, 2048, false);
  add_linear(cases, 8, {48}, 6144, false);
  for (const bool residual : {false, true}) {
    add_linear(cases, 1, {384, 128, 128}, 160, false, residual);
    add_linear(cases, 70, {48, 16, 16}, 304, true, residual);
    add_linear(cases, 1, {2048}, 2048, false, residual);
    add_linear(cases, 8, {9}, 25600, true, residual);
    // No size a multiple of a tile.
    add_linear(cases, 200, {129}, 96, true, residual);
    add_linear(cases, 9, {40}, 24, false, residual);
    add_linear(cases, 129, {257}, 264, true, residual);
    add_linear(cases, 67, {31}, 75, true, residual);
  }
  for (int64_t rows : {1, 3, 8, 33}) add_linear(cases, rows, {65}, 214, true, true);
}

const char* name_of(Gelu kind) {
  return kind == Gelu::kTanh ? "tanh" : "erf";
}

// Products of rows that a GPU reads by whole 16 bytes. Results lie so that several can be written together (where
// out + gap is a multiple of 4) or not.
struct ManyRows {
  int64_t rows, out, in, gap;
  std::string name() const { return fmt::format("{}x{}x{}_gap_{}", rows, out, in, gap); }
};

void add_sums_of_many_rows(Cases& cases, const ManyRows& s) {
  add(cases, {.op = "linear_add", .shape = s.name(), .tolerance = 3e-6, .residual = true}, [=](Bench& b, Body) {
    const auto w = b.linear({s.out}, s.in, true);
    const Tensor y = b.residuals(s.rows, s.out, 1, s.out + s.gap);
    b.ops().linear_add(*w, b.activations(s.rows, s.in, 1, s.in + 8), b.poisoned(s.rows, s.out), y);
    b.take(y);
  });
  const int64_t half = s.out / 2;
  add(cases, {.op = "norm_gate_up", .shape = s.name(), .tolerance = 3e-6}, [=](Bench& b, Body) {
    const auto w = b.linear({half, half}, s.in, false, {0, "gate_up"});
    const Tensor x = b.residuals(s.rows, s.in, 3), h = b.poisoned(s.rows, s.in);
    const Tensor y = b.poisoned(s.rows, half, half + s.gap), scratch = b.poisoned(s.rows, 2 * half);
    b.ops().norm_gate_up(b.norm(s.in, false), *w, x, h, scratch, y);
    b.take(y);
  });
}

void add_products_of_many_rows(Cases& cases, const ManyRows& s) {
  add_sums_of_many_rows(cases, s);
  for (const bool residual : {false, true}) {
    const std::string shape = s.name() + (residual ? "_to_residuals" : "");
    add(cases, {.op = "linear", .shape = shape, .tolerance = 3e-6, .residual = residual}, [=](Bench& b, Body) {
      const auto w = b.linear({s.out}, s.in, residual);
      const Tensor y = output(b, residual, s.rows, s.out, s.out + s.gap);
      b.ops().linear(*w, b.activations(s.rows, s.in, 1, s.in + 8), y);
      b.take(y);
    });
  }
  for (const Gelu kind : {Gelu::kTanh, Gelu::kErf}) {
    const std::string shape = fmt::format("{}_{}", name_of(kind), s.name());
    add(cases, {.op = "linear_gelu", .shape = shape, .tolerance = 3e-6}, [=](Bench& b, Body) {
      const auto w = b.linear({s.out}, s.in, true);
      const Tensor y = b.poisoned(s.rows, s.out, s.out + s.gap);
      b.ops().linear_gelu(*w, b.activations(s.rows, s.in), kind, y);
      b.take(y);
    });
  }
}

void add_products_of_many_rows(Cases& cases) {
  for (const int64_t gap : {4, 3}) {
    add_products_of_many_rows(cases, {9, 40, 24, gap});
    add_products_of_many_rows(cases, {129, 262, 456, gap + 2});
  }
  // So many that an H200 takes larger tiles: 128 x 128, the same twice a multiprocessor, 128 x 256.
  add_products_of_many_rows(cases, {520, 2180, 24, 4});
  add_sums_of_many_rows(cases, {1000, 6148, 8, 4});
  add_sums_of_many_rows(cases, {1610, 4100, 8, 4});
}

void add_norms(Cases& cases) {
  for (int64_t rows : {1, 5, 33}) {
    for (int64_t cols : {72, 128, 160, 1024}) {
      const std::string shape = fmt::format("{}x{}", rows, cols);
      add(cases, {.op = "rms_norm", .shape = shape, .tolerance = 2e-6}, [=](Bench& b, Body) {
        const Tensor y = b.poisoned(rows, cols);
        b.ops().rms_norm(b.residuals(rows, cols, 3), b.norm(cols, false), y);
        b.take(y);
      });
      add(cases, {.op = "layer_norm", .shape = shape, .tolerance = 2e-6}, [=](Bench& b, Body) {
        const Tensor y = b.poisoned(rows, cols);
        b.ops().layer_norm(b.residuals(rows, cols, 3), b.norm(cols, true), y);
        b.take(y);
      });
    }
  }
  add(cases, {.op = "rms_norm", .shape = "per_head_in_place", .tolerance = 2e-6}, [](Bench& b, Body) {
    const Tensor x = b.activations(5, 3 * 128, 2, 500);
    b.ops().rms_norm(x, b.norm(128, false), x);
    b.take(x);
  });
  // A constant row: the eps decides.
  add(cases, {.op = "rms_norm", .shape = "tiny_values", .tolerance = 2e-6}, [](Bench& b, Body) {
    const Tensor y = b.poisoned(2, 64);
    b.ops().rms_norm(b.residuals(2, 64, 1e-4f), b.norm(64, false), y);
    b.take(y);
  });
}

// Cosines and sines of random angles, for heads of head_dim.
Tensor cos_sin(Bench& b, int64_t rows, int64_t head_dim) {
  const int64_t n = head_dim / 2;
  std::vector<float> values(static_cast<size_t>(rows * head_dim));
  for (int64_t i = 0; i < rows * n; ++i) {
    const float angle = static_cast<float>(b.below(300)) / 40;
    float* cosine = &values[static_cast<size_t>(i / n * head_dim + i % n)];
    cosine[0] = std::cos(angle);
    cosine[n] = std::sin(angle);
  }
  return b.floats(values, rows, head_dim);
}

void add_rope(Cases& cases) {
  for (int32_t largest : {300, 262144}) {
    for (int64_t n : {4, 36, 64}) {
      const std::string shape = fmt::format("{}_up_to_{}", n, largest);
      add(cases, {.op = "rope_angles", .shape = shape, .tolerance = 2e-6, .residual = true}, [=](Bench& b, Body) {
        constexpr int64_t kRows = 19;
        std::vector<int32_t> positions, axis;
        std::vector<float> inv;
        for (int64_t i = 0; i < kRows * 3; ++i) positions.push_back(b.below(largest));
        for (int64_t j = 0; j < n; ++j) {
          axis.push_back(static_cast<int32_t>(j % 3));
          inv.push_back(std::pow(1e4f, -static_cast<float>(j) / static_cast<float>(n)));
        }
        const Tensor cos_sin = b.floats(std::vector<float>(static_cast<size_t>(kRows * 2 * n), NAN), kRows, 2 * n);
        b.ops().rope_angles(b.ints(positions, kRows, 3), {b.floats(inv, 1, n), b.ints(axis, 1, n)}, cos_sin);
        b.take(cos_sin);
      });
    }
  }
  for (int head_dim : {8, 64, 72, 128}) {
    for (int64_t rows : {1, 19}) {
      const std::string shape = fmt::format("{}_rows_of_{}", rows, head_dim);
      add(cases, {.op = "rope", .shape = shape, .tolerance = 2e-6}, [=](Bench& b, Body) {
        const Tensor x = b.activations(rows, 3 * head_dim, 1, 4 * head_dim);
        b.ops().rope(x, cos_sin(b, rows, head_dim), head_dim);
        b.take(x);
      });
    }
  }
}

struct Heads {
  int heads, kv_heads, head_dim;
  AttentionShape shape() const { return {heads, kv_heads, head_dim, 1 / std::sqrt(static_cast<float>(head_dim))}; }
};

void add_attend_cache(Cases& cases, const Heads& s, const std::string& what, const std::vector<int32_t>& lengths,
                      bool one_sequence, KvMode mode = KvMode::kBf16) {
  const std::string shape = fmt::format("{}q_{}kv_{}_{}", s.heads, s.kv_heads, s.head_dim, what);
  add(cases, {.op = "attend_cache", .shape = shape, .tolerance = 5e-6, .kv = mode}, [=](Bench& b, Body) {
    const Step step = b.step(lengths, one_sequence);
    const int64_t rows = step.rows, cols = int64_t{s.heads} * s.head_dim;
    const KvLayer cache = b.cache(s.shape(), mode);
    const Tensor out = b.poisoned(rows, cols);
    b.ops().attend_cache(b.activations(rows, cols, 2, cols + 256), step, cache, s.shape(), out);
    b.take(out);
  });
}

void add_int8_append(Cases& cases) {
  add(cases, {.op = "append_kv", .shape = "int8", .tolerance = 1e-7, .kv = KvMode::kInt8}, [](Bench& b, Body) {
    const AttentionShape shape{4, 2, 72, 1};
    const Step step = b.step({1, 64, 65, 130}, true);
    const KvLayer cache = b.cache(shape, KvMode::kInt8);
    const Tensor k = b.activations(4, 144), v = b.activations(4, 144);
    b.ops().append_kv(k, v, step, shape, cache);
    b.take(cache, shape);
  });
}

void add_attention(Cases& cases) {
  add_int8_append(cases);
  for (const Heads s : {Heads{3, 1, 128}, {4, 2, 128}, {2, 2, 72}, {16, 2, 64}}) {
    for (int32_t length : {1, 2, 63, 64, 65, 200, 1581}) {
      add_attend_cache(cases, s, fmt::format("decode_at_{}", length), {length}, true);
    }
    add_attend_cache(cases, s, "batch", {5, 130, 64, 1}, false);
    add_attend_cache(cases, s, "batch_of_12", {5, 130, 64, 1, 2, 65, 128, 129, 63, 190, 7, 70}, false);
    add_attend_cache(cases, s, "short_chunk", {62, 63, 64, 65, 66}, true);
    std::vector<int32_t> chunk;
    for (int32_t i = 0; i < 77; ++i) chunk.push_back(60 + i);
    add_attend_cache(cases, s, "chunk", chunk, true);
    std::vector<int32_t> from_the_start, long_chunk, batch_of_70;
    for (int32_t i = 0; i < 150; ++i) from_the_start.push_back(1 + i);
    for (int32_t i = 0; i < 200; ++i) long_chunk.push_back(301 + i);
    for (int32_t i = 0; i < 70; ++i) batch_of_70.push_back(1 + i * 37 % 300);
    add_attend_cache(cases, s, "from_the_start", from_the_start, true);
    add_attend_cache(cases, s, "start_of_118", {from_the_start.begin(), from_the_start.begin() + 118}, true);
    add_attend_cache(cases, s, "long_chunk", long_chunk, true);
    add_attend_cache(cases, s, "batch_of_70", batch_of_70, false);
    for (int32_t length : {1, 65, 200}) {
      add_attend_cache(cases, s, fmt::format("int8_decode_at_{}", length), {length}, true, KvMode::kInt8);
    }
    add_attend_cache(cases, s, "int8_batch", {5, 130, 64, 1}, false, KvMode::kInt8);
    add_attend_cache(cases, s, "int8_chunk", chunk, true, KvMode::kInt8);
  }
  // So long that a block of a GPU takes several parts.
  for (const Heads s : {Heads{16, 8, 128}, {8, 8, 64}}) {
    add_attend_cache(cases, s, "decode_at_5003", {5003}, true);
    add_attend_cache(cases, s, "int8_decode_at_5003", {5003}, true, KvMode::kInt8);
    add_attend_cache(cases, s, "long_batch", {5003, 1, 2100}, false);
  }
  for (const Heads s : {Heads{2, 2, 64}, {1, 1, 72}, {3, 3, 72}, {3, 3, 16}}) {
    for (const std::vector<int32_t>& bounds :
         {std::vector<int32_t>{0, 1}, {0, 100}, {0, 24, 48, 72}, {0, 5, 134}, {0, 300}, {0, 64, 900}}) {
      std::string shape = fmt::format("{}x{}", s.heads, s.head_dim);
      for (size_t i = 1; i < bounds.size(); ++i) shape += fmt::format("_{}", bounds[i]);
      add(cases, {.op = "attend_spans", .shape = shape, .tolerance = 5e-6}, [=](Bench& b, Body) {
        const int64_t rows = bounds.back(), cols = int64_t{s.heads} * s.head_dim;
        const Tensor qkv = b.activations(rows, 3 * cols, 1.5f);
        const Tensor out = b.poisoned(rows, cols);
        const Spans spans{bounds.data(), static_cast<int64_t>(bounds.size()) - 1};
        b.ops().attend_spans(qkv.slice_cols(0, cols), qkv.slice_cols(cols, cols), qkv.slice_cols(2 * cols, cols), spans,
                             s.shape(), out);
        b.take(out);
      });
    }
  }
}

void add_elementwise(Cases& cases) {
  for (int64_t cols : {1, 31, 304, 640}) {
    // Five values could all be where GELU is nearly zero, and what float32 leaves of 1 + erf is all the difference there.
    const int64_t rows = cols == 1 ? 45 : 5;
    const std::string shape = fmt::format("{}x{}", rows, cols);
    add(cases, {.op = "silu_mul", .shape = shape, .tolerance = 3e-6}, [=](Bench& b, Body) {
      const Tensor y = b.poisoned(rows, cols);
      b.ops().silu_mul(b.activations(rows, 2 * cols, 4), y);
      b.take(y);
    });
    for (const Gelu kind : {Gelu::kTanh, Gelu::kErf}) {
      const std::string gelu = fmt::format("{}_{}", name_of(kind), shape);
      add(cases, {.op = "gelu", .shape = gelu, .tolerance = 3e-6}, [=](Bench& b, Body) {
        const Tensor x = b.activations(rows, cols, 3);
        b.ops().gelu(x, kind);
        b.take(x);
      });
    }
    add(cases, {.op = "add", .shape = shape, .tolerance = 1e-7, .residual = true}, [=](Bench& b, Body) {
      const Tensor y = b.residuals(rows, cols);
      b.ops().add(b.activations(rows, cols), y);
      b.take(y);
    });
  }
  // Where exp would overflow.
  add(cases, {.op = "silu_mul", .shape = "extremes", .tolerance = 3e-6}, [](Bench& b, Body) {
    const Tensor y = b.poisoned(1, 600);
    b.ops().silu_mul(b.activations(1, 1200, 80), y);
    b.take(y);
  });
  for (const Gelu kind : {Gelu::kTanh, Gelu::kErf}) {
    const std::string shape = fmt::format("{}_extremes", name_of(kind));
    add(cases, {.op = "gelu", .shape = shape, .tolerance = 3e-6}, [=](Bench& b, Body) {
      const Tensor x = b.activations(1, 600, 40);
      b.ops().gelu(x, kind);
      b.take(x);
    });
  }
}

void add_rows(Cases& cases) {
  for (int64_t cols : {72, 256}) {
    add(cases, {.op = "embed", .shape = fmt::format("9x{}", cols), .residual = true}, [=](Bench& b, Body) {
      const auto w = b.linear({50}, cols, false);
      std::vector<int32_t> ids;
      for (int i = 0; i < 9; ++i) ids.push_back(b.below(50));
      Step step;
      step.ids = b.ints(ids, 9, 1);
      const Tensor out = b.poisoned_residuals(9, cols);
      b.ops().embed(*w, step, out);
      b.take(out);
    });
    add(cases,
        {.op = "begin_rows", .shape = fmt::format("9x{}", cols), .tolerance = 2e-6, .fused = true, .residual = true},
        [=](Bench& b, Body body) {
          constexpr int64_t kRows = 9, kAngles = 64;
          const auto w = b.linear({50}, cols, false);
          std::vector<int32_t> ids, positions, axis;
          std::vector<float> inv;
          for (int64_t i = 0; i < kRows; ++i) ids.push_back(b.below(50));
          for (int64_t i = 0; i < kRows * 3; ++i) positions.push_back(b.below(300));
          for (int64_t j = 0; j < kAngles; ++j) {
            axis.push_back(static_cast<int32_t>(j % 3));
            inv.push_back(std::pow(1e4f, -static_cast<float>(j) / static_cast<float>(kAngles)));
          }
          Step step;
          step.ids = b.ints(ids, kRows, 1);
          step.positions = b.ints(positions, kRows, 3);
          const RopeTable rope = {b.floats(inv, 1, kAngles), b.ints(axis, 1, kAngles)};
          const Tensor x = b.poisoned_residuals(kRows, cols);
          const Tensor cos_sin =
              b.floats(std::vector<float>(static_cast<size_t>(kRows * 2 * kAngles), NAN), kRows, 2 * kAngles);
          if (body == Body::kOwn) {
            b.ops().begin_rows(*w, step, rope, x, cos_sin);
          } else {
            b.ops().Ops::begin_rows(*w, step, rope, x, cos_sin);
          }
          b.take(x);
          b.take(cos_sin);
        });
    const std::string rows_shape = fmt::format("12x{}", cols);
    add(cases, {.op = "put_add_gather_rows", .shape = rows_shape, .tolerance = 1e-7, .residual = true},
        [=](Bench& b, Body) {
          const Tensor x = b.residuals(12, cols), rows = b.activations(4, cols), out = b.poisoned_residuals(3, cols);
          b.ops().put_rows(rows, b.ints({0, 3, 7, 11}, 4, 1), x);
          b.ops().add_rows(rows, b.ints({11, 2, 5, 0}, 4, 1), x);
          b.ops().gather_rows(x, b.ints({11, 0, 4}, 3, 1), out);
          b.take(x);
          b.take(out);
        });
    const std::string positions_shape = fmt::format("10x{}", cols);
    add(cases, {.op = "add_positions", .shape = positions_shape, .tolerance = 1e-6, .residual = true},
        [=](Bench& b, Body) {
          std::vector<int32_t> taps;
          std::vector<float> weights;
          for (int i = 0; i < 40; ++i) {
            taps.push_back(b.below(25));
            weights.push_back(std::fabs(b.normal(0.3f)));
          }
          const Tensor x = b.residuals(10, cols);
          b.ops().add_positions(b.table(25, cols), b.ints(taps, 10, 4), b.floats(weights, 10, 4), x);
          b.take(x);
        });
  }
  add(cases, {.op = "normalize_pixels", .shape = "7x48", .tolerance = 1e-6}, [](Bench& b, Body) {
    std::vector<uint8_t> bytes(7 * 48);
    for (uint8_t& v : bytes) v = static_cast<uint8_t>(b.below(256));
    const Tensor out = b.poisoned(7, 48);
    b.ops().normalize_pixels(b.bytes(bytes, 7, 48), {{127.5f, 120, 100}, {127.5f, 60, 70}}, out);
    b.take(out);
  });
}

void add_steps(Cases& cases) {
  for (int64_t vocab : {7, 1088, 151936}) {
    add(cases, {.op = "sample_advance", .shape = fmt::format("3x{}", vocab), .residual = true}, [=](Bench& b, Body) {
      Step step = b.step({5, 64, 70}, false);
      step.ids = b.ints({0, 0, 0}, 3, 1);
      step.positions = b.ints({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3, 3);
      step.sampled = b.ints({-9, -9, -9}, 3, 1);
      // Ties go to the lowest id: values are few, and those of the last row negative.
      std::vector<float> logits;
      for (int64_t i = 0; i < 3 * vocab; ++i) {
        logits.push_back(static_cast<float>(b.below(static_cast<int32_t>(std::min<int64_t>(vocab, 256)) / 2)));
        if (i >= 2 * vocab) logits.back() -= 200;
      }
      b.ops().sample(b.residuals_of(logits, 3, vocab), step);
      b.take(step.sampled);
      b.ops().advance(step);
      for (const Tensor& state : {step.ids, step.positions, step.lengths, step.slots}) b.take(state);
    });
  }
  add(cases, {.op = "sample_advance", .shape = "at_the_last_page"}, [](Bench& b, Body) {
    const AttentionShape shape{2, 1, 16, 1};
    Step step = b.step({2 * kPageTokens - 1, 2 * kPageTokens}, false);
    const KvLayer cache = b.cache(shape);
    step.ids = b.ints({0, 0}, 2, 1);
    step.positions = b.ints({1, 2, 3, 4, 5, 6}, 2, 3);
    step.sampled = b.ints({-9, -9}, 2, 1);
    b.ops().sample(b.residuals_of({1, 3, 2, 5, 4, 6}, 2, 3), step);
    // The first row has one place left, the second none.
    for (int i = 0; i < 2; ++i) {
      b.ops().advance(step);
      for (const Tensor& state : {step.ids, step.positions, step.lengths, step.slots}) b.take(state);
      const Tensor k = b.activations(2, 16), v = b.activations(2, 16);
      b.ops().append_kv(k, v, step, shape, cache);
    }
    b.take(cache, shape);
  });
  add(cases, {.op = "sample", .shape = "not_finite", .residual = true}, [](Bench& b, Body) {
    Step step;
    step.sampled = b.ints({7, 7, 7, 7}, 4, 1);
    std::vector<float> logits(4 * 9, 1.0f);
    logits[4] = std::numeric_limits<float>::quiet_NaN();
    logits[9 + 3] = std::numeric_limits<float>::infinity();
    logits[3 * 9 + 8] = -std::numeric_limits<float>::infinity();
    b.ops().sample(b.residuals_of(logits, 4, 9), step);
    b.take(step.sampled);
  });
}

// A mixture of `count` experts from `h` columns over `im` back to `h`, of which each row chooses `k`.
struct Mixture {
  int count;
  int64_t h, im, k;
};

std::string name_of(int64_t rows, const Mixture& m, const char* layout) {
  return fmt::format("{}_rows_{}_of_{}x{}x{}_{}", rows, m.k, m.count, m.h, m.im, layout);
}

// Experts in the layouts of checkpoints; kApart: gate and up are tensors of their own.
enum class Stored { kApart, kOutIn, kInOut };

struct Experts {
  std::unique_ptr<Linear> up, down;
};

Experts place_experts(Bench& b, const Mixture& m, Stored stored, Tier up_tier = Tier::kBf16,
                      Tier down_tier = Tier::kBf16) {
  const bool turned = stored == Stored::kInOut;
  const auto matrix = [&](int64_t out, int64_t in, float scale) {
    return b.weight(turned ? std::vector<int64_t>{in, out} : std::vector<int64_t>{out, in}, scale);
  };
  std::vector<std::vector<HostTensor>> up, down;
  for (int e = 0; e < m.count; ++e) {
    if (stored == Stored::kApart) {
      up.push_back({matrix(m.im, m.h, 0.15f), matrix(m.im, m.h, 0.15f)});
    } else {
      up.push_back({matrix(2 * m.im, m.h, 0.15f)});
    }
    down.push_back({matrix(m.h, m.im, 0.2f)});
  }
  const ExpertLayout layout = turned ? ExpertLayout::kInOut : ExpertLayout::kOutIn;
  return {b.backend().place_experts(up, layout, {0, "gate_up", up_tier}),
          b.backend().place_experts(down, layout, {0, "mlp_down", down_tier})};
}

void run_experts(Bench& b, const Experts& e, int64_t rows, const Mixture& m) {
  std::vector<int32_t> ids;
  std::vector<float> weights;
  for (int64_t r = 0; r < rows; ++r) {
    for (int32_t id : b.distinct_below(m.count, m.k)) {
      ids.push_back(id);
      weights.push_back(std::fabs(b.normal(0.5f)));
    }
  }
  const Tensor x = b.activations(rows, m.h), inout = b.residuals(rows, m.h);
  const int64_t width = 3 * m.im + m.h;
  const Tensor scratch = b.floats(std::vector<float>(static_cast<size_t>(rows * m.k * width), NAN), rows * m.k, width);
  b.ops().experts(*e.up, *e.down, x, b.ints(ids, rows, m.k), b.floats(weights, rows, m.k), scratch, inout);
  b.take(inout);
}

void add_experts(Cases& cases, int64_t rows, const Mixture& m, Stored stored) {
  const std::string shape = name_of(rows, m, stored == Stored::kInOut ? "in_out" : "out_in");
  add(cases, {.op = "experts", .shape = shape, .tolerance = 5e-6, .residual = true},
      [=](Bench& b, Body) { run_experts(b, place_experts(b, m, stored), rows, m); });
}

void add_moe(Cases& cases) {
  for (const bool renormalize : {true, false}) {
    for (int64_t count : {16, 128}) {
      // Ids on their own, since they must be the same, and are large beside weights.
      for (const bool take_ids : {true, false}) {
        const std::string shape =
            fmt::format("{}_{}_{}", renormalize ? "renormalized" : "plain", count, take_ids ? "ids" : "weights");
        const double tolerance = take_ids ? 0 : 2e-6;
        add(cases, {.op = "route", .shape = shape, .tolerance = tolerance, .residual = true}, [=](Bench& b, Body) {
          const int64_t k = count / 16 + 2;
          const Tensor ids = b.ints(std::vector<int32_t>(static_cast<size_t>(5 * k), -1), 5, k),
                       weights = b.floats(std::vector<float>(static_cast<size_t>(5 * k), NAN), 5, k);
          b.ops().route(b.residuals(5, count, 2), renormalize, ids, weights);
          b.take(take_ids ? ids : weights);
        });
      }
    }
  }
  for (const Stored stored : {Stored::kOutIn, Stored::kInOut}) {
    for (int64_t rows : {1, 6, 40}) add_experts(cases, rows, {5, 56, 32, 2}, stored);
    for (int64_t rows : {1, 8, 70}) add_experts(cases, rows, {16, 264, 96, 8}, stored);
  }
}

void add_fused(Cases& cases) {
  for (int64_t rows : {1, 3, 8, 33}) {
    add(cases,
        {.op = "linear_add",
         .shape = fmt::format("{}x65x214", rows),
         .tolerance = 3e-6,
         .fused = true,
         .residual = true},
        [=](Bench& b, Body body) {
          const auto w = b.linear({65}, 214, true);
          const Tensor x = b.activations(rows, 214), y = b.residuals(rows, 65), scratch = b.poisoned(rows, 65);
          if (body == Body::kOwn) {
            b.ops().linear_add(*w, x, scratch, y);
          } else {
            b.ops().Ops::linear_add(*w, x, scratch, y);
          }
          b.take(y);
        });
    for (const bool residual : {false, true}) {
      const std::string shape = fmt::format("{}x65x214{}", rows, residual ? "_to_residuals" : "");
      add(cases, {.op = "norm_linear", .shape = shape, .tolerance = 3e-6, .fused = true}, [=](Bench& b, Body body) {
        const auto w = b.linear({48, 17}, 214, true);
        const Norm norm = b.norm(214, false);
        const Tensor x = b.residuals(rows, 214, 3), y = output(b, residual, rows, 65), scratch = b.poisoned(rows, 214);
        if (body == Body::kOwn) {
          b.ops().norm_linear(norm, *w, x, scratch, y);
        } else {
          b.ops().Ops::norm_linear(norm, *w, x, scratch, y);
        }
        b.take(y);
      });
    }
    for (const auto& [out, in] : {std::pair<int64_t, int64_t>{304, 160}, {37, 75}}) {
      const std::string shape = fmt::format("{}x{}x{}", rows, out, in);
      add(cases, {.op = "norm_gate_up", .shape = shape, .tolerance = 3e-6, .fused = true},
          [=, out = out, in = in](Bench& b, Body body) {
            const auto w = b.linear({out, out}, in, false, {0, "gate_up"});
            const Norm norm = b.norm(in, false);
            const Tensor x = b.residuals(rows, in, 3), y = b.poisoned(rows, out);
            const Tensor h = b.poisoned(rows, in), scratch = b.poisoned(rows, 2 * out);
            if (body == Body::kOwn) {
              b.ops().norm_gate_up(norm, *w, x, h, scratch, y);
            } else {
              b.ops().Ops::norm_gate_up(norm, *w, x, h, scratch, y);
            }
            b.take(y);
          });
    }
    for (const Gelu kind : {Gelu::kTanh, Gelu::kErf}) {
      const std::string shape = fmt::format("{}_{}x214x72", name_of(kind), rows);
      add(cases, {.op = "linear_gelu", .shape = shape, .tolerance = 3e-6, .fused = true}, [=](Bench& b, Body body) {
        const auto w = b.linear({214}, 72, true);
        const Tensor x = b.activations(rows, 72), y = b.poisoned(rows, 214);
        if (body == Body::kOwn) {
          b.ops().linear_gelu(*w, x, kind, y);
        } else {
          b.ops().Ops::linear_gelu(*w, x, kind, y);
        }
        b.take(y);
      });
    }
    for (const auto& [shape, first_length] :
         {std::pair{AttentionShape{3, 1, 128, 0.09f}, 40}, {{16, 8, 128, 0.09f}, 5000}}) {
      if (first_length > 40 && rows > 3) continue;
      const std::string rows_shape = fmt::format("{}_rows_{}kv_at_{}", rows, shape.kv_heads, first_length);
      add(cases, {.op = "norm_rope_attend", .shape = rows_shape, .tolerance = 3e-6, .fused = true},
          [=, shape = shape, first_length = first_length](Bench& b, Body body) {
            std::vector<int32_t> lengths;
            for (int64_t r = 0; r < rows; ++r) lengths.push_back(first_length + static_cast<int32_t>(r));
            const Step step = b.step(lengths, true);
            const KvLayer cache = b.cache(shape);
            const int64_t heads = shape.heads + 2 * shape.kv_heads;
            const Tensor qkv = b.activations(rows, heads * 128, 2), angles = cos_sin(b, rows, 128);
            const HeadNorms norms{b.norm(128, false), b.norm(128, false), angles};
            const Tensor out = b.poisoned(rows, int64_t{shape.heads} * 128);
            if (body == Body::kOwn) {
              b.ops().norm_rope_attend(qkv, norms, step, cache, shape, out);
            } else {
              b.ops().Ops::norm_rope_attend(qkv, norms, step, cache, shape, out);
            }
            b.take(out);
            b.take(cache, shape);
          });
    }
  }
}

// --- weights in a tier, as decode steps read them ---

struct TierShape {
  int64_t rows, out, in;
  std::string name(Tier tier) const { return fmt::format("{}_{}x{}x{}", tier_name(tier), rows, out, in); }
};

// A backend may read rows as integers of 16 bits where codes are integers, or, as those of w4, halves. That rounding costs 1.8e-5 of an
// output; but few outputs may all be small by chance: five are, by more than 6e-5, in one draw of a hundred, by 2.4e-4 in none of 60000.
double tier_tolerance(Tier tier, int64_t outputs = 16) {
  if (tier == Tier::kW8) return 3e-6;
  return outputs < 16 ? 2.4e-4 : 6e-5;
}

template <typename F>
void decode(Bench& b, F work) {
  b.ops().begin_step(true);
  work();
  b.ops().begin_step(false);
}

void add_tier_linears(Cases& cases, Tier tier, const TierShape& s) {
  OpCase one{
      .op = "tier_linear", .shape = s.name(tier), .tolerance = tier_tolerance(tier, s.rows * s.out), .residual = true};
  add(cases, one, [=](Bench& b, Body) {
    const auto w = b.linear({s.out}, s.in, s.in % 3 == 0, {0, "lm_head", tier});
    const Tensor x = b.activations(s.rows, s.in, 1, s.in + 5), y = b.poisoned_residuals(s.rows, s.out, s.out + 3);
    decode(b, [&] { b.ops().linear(*w, x, y); });
    b.take(y);
  });
  // Not in a decode step the tier is not read.
  one.op = "tier_linear_in_bf16";
  one.tolerance = 3e-6;
  add(cases, one, [=](Bench& b, Body) {
    const auto w = b.linear({s.out}, s.in, false, {0, "lm_head", tier});
    const Tensor x = b.activations(s.rows, s.in), y = b.poisoned_residuals(s.rows, s.out);
    b.ops().linear(*w, x, y);
    b.take(y);
  });
}

void add_fused_tiers(Cases& cases, Tier tier, const TierShape& s) {
  OpCase one{.op = "tier_linear_add",
             .shape = s.name(tier),
             .tolerance = tier_tolerance(tier, s.rows * s.out),
             .fused = true,
             .residual = true};
  add(cases, one, [=](Bench& b, Body body) {
    const auto w = b.linear({s.out}, s.in, true, {0, "o_proj", tier});
    const Tensor x = b.activations(s.rows, s.in), y = b.residuals(s.rows, s.out), scratch = b.poisoned(s.rows, s.out);
    decode(b, [&] {
      body == Body::kOwn ? b.ops().linear_add(*w, x, scratch, y) : b.ops().Ops::linear_add(*w, x, scratch, y);
    });
    b.take(y);
  });
  one.op = "tier_norm_linear";
  one.residual = false;
  add(cases, one, [=](Bench& b, Body body) {
    const auto w = b.linear({s.out, 17}, s.in, false, {0, "qkv_proj", tier});
    const Norm norm = b.norm(s.in, false);
    const Tensor x = b.residuals(s.rows, s.in, 3), y = b.poisoned(s.rows, s.out + 17),
                 scratch = b.poisoned(s.rows, s.in);
    decode(b, [&] {
      body == Body::kOwn ? b.ops().norm_linear(norm, *w, x, scratch, y)
                         : b.ops().Ops::norm_linear(norm, *w, x, scratch, y);
    });
    b.take(y);
  });
  one.op = "tier_norm_gate_up";
  add(cases, one, [=](Bench& b, Body body) {
    const auto w = b.linear({s.out, s.out}, s.in, false, {0, "gate_up", tier});
    const Norm norm = b.norm(s.in, false);
    const Tensor x = b.residuals(s.rows, s.in, 3), y = b.poisoned(s.rows, s.out), h = b.poisoned(s.rows, s.in),
                 scratch = b.poisoned(s.rows, 2 * s.out);
    decode(b, [&] {
      body == Body::kOwn ? b.ops().norm_gate_up(norm, *w, x, h, scratch, y)
                         : b.ops().Ops::norm_gate_up(norm, *w, x, h, scratch, y);
    });
    b.take(y);
  });
}

void add_tier_experts(Cases& cases, Tier tier, int64_t rows, const Mixture& m) {
  struct Layout {
    Stored stored;
    const char* name;
  };
  for (const Layout l : {Layout{Stored::kApart, "apart"}, {Stored::kOutIn, "out_in"}, {Stored::kInOut, "in_out"}}) {
    OpCase one{.op = "tier_experts",
               .shape = fmt::format("{}_{}", tier_name(tier), name_of(rows, m, l.name)),
               .tolerance = tier_tolerance(tier)};
    add(cases, one, [=](Bench& b, Body) {
      const Experts e = place_experts(b, m, l.stored, tier, tier);
      decode(b, [&] { run_experts(b, e, rows, m); });
    });
    if (l.stored != Stored::kInOut) continue;
    one.op = "tier_experts_of_one_projection";
    add(cases, one, [=](Bench& b, Body) {
      const Experts up = place_experts(b, m, l.stored, tier), down = place_experts(b, m, l.stored, Tier::kBf16, tier);
      decode(b, [&] {
        run_experts(b, up, rows, m);
        run_experts(b, down, rows, m);
      });
    });
    one.op = "tier_experts_in_bf16";
    one.tolerance = 5e-6;
    one.residual = true;
    add(cases, one, [=](Bench& b, Body) { run_experts(b, place_experts(b, m, l.stored, tier, tier), rows, m); });
  }
}

void add_tiers(Cases& cases) {
  for (const Tier tier : {Tier::kInt8, Tier::kW8, Tier::kInt4, Tier::kW4, Tier::kNvfp4}) {
    for (const TierShape& s : {TierShape{1, 5, 72},
                               {3, 77, 214},
                               {8, 77, 2048},
                               {1, 2048, 2048},
                               {2, 77, 6144},
                               {8, 77, 25600},  // of few outputs the worst would decide, by chance
                               {1, 33, 1},
                               {5, 64, 144}})
      add_tier_linears(cases, tier, s);
    for (const TierShape& s : {TierShape{1, 65, 214}, {8, 65, 214}, {4, 48, 2048}, {1, 304, 160}})
      add_fused_tiers(cases, tier, s);
    for (const int64_t rows : {1, 3, 8}) add_tier_experts(cases, tier, rows, {5, 56, 40, 2});
    add_tier_experts(cases, tier, 1, {3, 17, 5, 3});  // the last group is short, and the only one
    add_tier_experts(cases, tier, 8, {16, 264, 96, 8});
    add_tier_experts(cases, tier, 2, {4, 1000, 214, 2});
  }
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const Cases cases = [] {
    Cases c;
    add_linears(c);
    add_products_of_many_rows(c);
    add_norms(c);
    add_rope(c);
    add_attention(c);
    add_elementwise(c);
    add_rows(c);
    add_steps(c);
    add_moe(c);
    add_fused(c);
    add_tiers(c);
    return c;
  }();
  return cases;
}

}  // namespace vireo::testing_ops
