// SPDX-License-Identifier: Apache-2.0
#include "op_bench.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace vireo::testing_ops {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : difference;
}

CodedPart::CodedPart(Tier t, int64_t out_features, int64_t in_features, uint32_t seed)
    : tier(t), out(out_features), in(in_features), rows(static_cast<size_t>(out * in)), rounded(rows.size()) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (bf16& w : rows) w = to_bf16(normal(random));
  codes.resize(static_cast<size_t>(out * code_bytes(tier, in)));
  scales.resize(static_cast<size_t>(out * tier_groups(in)));
  tensor_scale = tensor_scale_of(tier, rows.data(), out * in);
  std::vector<float> values(static_cast<size_t>(in));
  for (int64_t o = 0; o < out; ++o) {
    const bf16* row = rows.data() + o * in;
    quantize_row(tier, row, in, codes.data() + o * code_bytes(tier, in), scales.data() + o * tier_groups(in),
                 tensor_scale);
    round_to_tier(tier, row, in, values.data(), tensor_scale);
    std::transform(values.begin(), values.end(), rounded.data() + o * in, to_bf16);
  }
  for (const bf16 s : scales) narrow.push_back(narrow_scale(s, tensor_scale));
}

CodedExperts::CodedExperts(Tier tier, int count, int64_t out, int64_t in, uint32_t seed) {
  for (int e = 0; e < count; ++e) {
    const CodedPart& w = experts_.emplace_back(tier, out, in, seed + static_cast<uint32_t>(e));
    std::vector<bf16>& turned = turned_.emplace_back(w.rows.size());
    for (int64_t i = 0; i < out * in; ++i)
      turned[static_cast<size_t>(i % in * out + i / in)] = w.rows[static_cast<size_t>(i)];
  }
}

template <typename DataOf>
CodedExperts::Tensors CodedExperts::each(DataOf data_of) const {
  Tensors all;
  for (const CodedPart& e : experts_) all.push_back({e.tensor(data_of(e))});
  return all;
}

CodedExperts::Tensors CodedExperts::rows() const {
  return each([](const CodedPart& e) { return e.rows.data(); });
}
CodedExperts::Tensors CodedExperts::rounded() const {
  return each([](const CodedPart& e) { return e.rounded.data(); });
}
CodedExperts::Tensors CodedExperts::without_rows() const {
  return each([](const CodedPart&) { return nullptr; });
}

CodedExperts::Tensors CodedExperts::halves() const {
  Tensors all;
  for (const CodedPart& e : experts_) {
    const int64_t first = e.out / 2;
    all.push_back({{"w", DType::kBF16, {first, e.in}, e.rows.data()},
                   {"w", DType::kBF16, {e.out - first, e.in}, e.rows.data() + first * e.in}});
  }
  return all;
}

CodedExperts::Tensors CodedExperts::turned() const {
  Tensors all;
  for (size_t e = 0; e < experts_.size(); ++e)
    all.push_back({{"w", DType::kBF16, {experts_[e].in, experts_[e].out}, turned_[e].data()}});
  return all;
}

std::vector<CodedMatrix> CodedExperts::coded() const {
  std::vector<CodedMatrix> all;
  for (const CodedPart& e : experts_) all.push_back(e.coded());
  return all;
}

std::vector<CodedMatrix> CodedExperts::coded_halves() const {
  std::vector<CodedMatrix> all;
  for (const CodedPart& e : experts_) {
    all.push_back(e.coded());
    all.push_back(e.coded().from_row(e.out / 2, e.in));
  }
  return all;
}

std::vector<double> CodedExperts::product(int32_t expert, const std::vector<double>& x) const {
  const CodedPart& w = experts_[static_cast<size_t>(expert)];
  std::vector<float> row(static_cast<size_t>(w.in));
  std::vector<double> y;
  for (int64_t o = 0; o < w.out; ++o) {
    round_to_tier(w.tier, w.rows.data() + o * w.in, w.in, row.data(), w.tensor_scale);
    y.push_back(std::inner_product(row.begin(), row.end(), x.begin(), 0.0));
  }
  return y;
}

std::vector<int32_t> Bench::distinct_below(int32_t n, int64_t count) {
  CHECK(count <= n);
  std::vector<int32_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), random_);
  all.resize(static_cast<size_t>(count));
  return all;
}

Tensor Bench::activations(int64_t rows, int64_t cols, float scale, int64_t stride) {
  return random_rows(backend_.activation_type(), rows, cols, scale, stride);
}

Tensor Bench::residuals(int64_t rows, int64_t cols, float scale, int64_t stride) {
  return random_rows(backend_.residual_type(), rows, cols, scale, stride);
}

Tensor Bench::residuals_of(const std::vector<float>& values, int64_t rows, int64_t cols) {
  return put(values, backend_.residual_type(), rows, cols, 0);
}

Tensor Bench::poisoned(int64_t rows, int64_t cols, int64_t stride) {
  return poisoned_rows(backend_.activation_type(), rows, cols, stride);
}

Tensor Bench::poisoned_residuals(int64_t rows, int64_t cols, int64_t stride) {
  return poisoned_rows(backend_.residual_type(), rows, cols, stride);
}

Tensor Bench::ints(const std::vector<int32_t>& values, int64_t rows, int64_t cols) {
  const Tensor t = keep(backend_.allocate(rows, cols, DType::kI32));
  backend_.upload(values.data(), t);
  return t;
}

Tensor Bench::floats(const std::vector<float>& values, int64_t rows, int64_t cols) {
  const Tensor t = keep(backend_.allocate(rows, cols, DType::kF32));
  backend_.upload(values.data(), t);
  return t;
}

Tensor Bench::bytes(const std::vector<uint8_t>& values, int64_t rows, int64_t cols) {
  const Tensor t = keep(backend_.allocate(rows, cols, DType::kU8));
  backend_.upload(values.data(), t);
  return t;
}

HostTensor Bench::weight(std::vector<int64_t> shape, float scale) {
  HostTensor t{"w", DType::kBF16, std::move(shape), nullptr};
  auto& data = weights_.emplace_back(static_cast<size_t>(t.size()));
  for (bf16& v : data) v = to_bf16(normal(scale));
  t.data = data.data();
  return t;
}

std::unique_ptr<Linear> Bench::linear(const std::vector<int64_t>& outs, int64_t in, bool with_bias, const Role& role) {
  std::vector<HostTensor> parts, biases;
  for (int64_t out : outs) {
    parts.push_back(weight({out, in}, 1 / std::sqrt(static_cast<float>(in))));
    if (with_bias) biases.push_back(weight({out}, 0.5f));
  }
  return backend_.place(parts, biases, role);
}

Norm Bench::norm(int64_t n, bool with_bias) {
  const HostTensor w = weight({n}, 0.2f);
  Norm out{.weight = keep(backend_.place_vector(w)), .eps = 1e-6f};
  if (with_bias) out.bias = keep(backend_.place_vector(weight({n}, 0.2f)));
  return out;
}

Tensor Bench::table(int64_t rows, int64_t cols) {
  return keep(backend_.place_table(weight({rows, cols}, 1)));
}

Step Bench::step(const std::vector<int32_t>& lengths, bool one_sequence) {
  const int32_t sequences = one_sequence ? 1 : static_cast<int32_t>(lengths.size());
  int32_t pages = 1;
  for (int32_t n : lengths) pages = std::max(pages, (n + kPageTokens - 1) / kPageTokens);
  const std::vector<int32_t> table = distinct_below(sequences * pages, int64_t{sequences} * pages);
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

KvLayer Bench::cache(const AttentionShape& shape, KvMode mode) {
  caches_.push_back(backend_.allocate_kv(slots_, shape, mode));
  const int64_t cols = int64_t{shape.kv_heads} * shape.head_dim;
  std::vector<int32_t> slots(static_cast<size_t>(slots_));
  std::iota(slots.begin(), slots.end(), 0);
  Step all;
  all.rows = slots_;
  all.slots = ints(slots, slots_, 1);
  const Tensor k = activations(slots_, cols), v = activations(slots_, cols);
  ops().append_kv(k, v, all, shape, caches_.back().view);
  return caches_.back().view;
}

std::vector<float> Bench::read(Tensor t) {
  const size_t n = static_cast<size_t>(t.size());
  std::vector<float> out(n);
  if (t.dtype == DType::kF32) {
    backend_.download(t, out.data());
  } else if (t.dtype == DType::kBF16) {
    std::vector<bf16> narrow(n);
    backend_.download(t, narrow.data());
    std::ranges::transform(narrow, out.begin(), to_float);
  } else {
    CHECK(t.dtype == DType::kI32);
    std::vector<int32_t> whole(n);
    backend_.download(t, whole.data());
    std::ranges::transform(whole, out.begin(), [](int32_t v) { return static_cast<float>(v); });
  }
  return out;
}

void Bench::write(const std::vector<float>& values, Tensor t) {
  CHECK(static_cast<int64_t>(values.size()) == t.size());
  if (t.dtype == DType::kF32) return backend_.upload(values.data(), t);
  CHECK(t.dtype == DType::kBF16);
  std::vector<bf16> narrow(values.size());
  std::ranges::transform(values, narrow.begin(), to_bf16);
  backend_.upload(narrow.data(), t);
}

void Bench::take(Tensor t) {
  const std::vector<float> values = read(t);
  taken_.insert(taken_.end(), values.begin(), values.end());
}

void Bench::take(KvLayer cache, const AttentionShape& shape) {
  const size_t cols = static_cast<size_t>(shape.kv_heads * shape.head_dim);
  for (int64_t slot = 0; slot < slots_; ++slot) {
    std::vector<float> rows(2 * cols);
    backend_.read_kv(cache, shape, slot, rows.data(), rows.data() + cols);
    taken_.insert(taken_.end(), rows.begin(), rows.end());
  }
}

std::vector<float> Bench::taken() {
  for (const Framed& f : framed_) {
    const std::vector<float> values = read(f.whole);
    const auto is_frame = [&](int64_t i) { return i % f.whole.cols >= f.cols || i / f.whole.cols == f.whole.rows - 1; };
    bool touched = false;
    for (int64_t i = 0; i < f.whole.size(); ++i) {
      touched |= is_frame(i) && !std::isnan(values[static_cast<size_t>(i)]);
    }
    if (touched) taken_.push_back(kNan);
  }
  return std::move(taken_);
}

Tensor Bench::keep(OwnedTensor t) {
  owned_.push_back(std::move(t));
  return owned_.back().view;
}

Tensor Bench::put(const std::vector<float>& values, DType type, int64_t rows, int64_t cols, int64_t stride) {
  const Tensor whole = keep(backend_.allocate(rows + 1, std::max(cols, stride), type));
  write(std::vector<float>(static_cast<size_t>(whole.size()), kNan), whole);
  const Tensor t = whole.slice_rows(0, rows).slice_cols(0, cols);
  write(values, t);
  framed_.push_back({whole, cols});
  return t;
}

Tensor Bench::random_rows(DType type, int64_t rows, int64_t cols, float scale, int64_t stride) {
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (float& v : values) v = to_float(to_bf16(normal(scale)));
  return put(values, type, rows, cols, stride);
}

Tensor Bench::poisoned_rows(DType type, int64_t rows, int64_t cols, int64_t stride) {
  return put(std::vector<float>(static_cast<size_t>(rows * cols), kNan), type, rows, cols, stride);
}

}  // namespace vireo::testing_ops
