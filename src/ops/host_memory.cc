// SPDX-License-Identifier: Apache-2.0
#include "ops/host_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/host_info.h"
#include "vireo/error.h"

namespace vireo {

std::optional<uint64_t> HostBackend::available_memory() const {
  return available_host_memory();
}

OwnedTensor HostBackend::allocate(int64_t rows, int64_t cols, DType dtype) {
  const size_t bytes = static_cast<size_t>(rows * cols) * size_of(dtype);
  const size_t padded = (bytes / 64 + 1) * 64;
  void* data = std::aligned_alloc(64, padded);
  if (!data) {
    throw Error(ErrorKind::kCapacity, "cannot allocate " + std::to_string(bytes >> 20) +
                                          " MiB of memory: free some, or use a smaller --max-seq or --max-pixels");
  }
  return {{data, dtype, rows, cols, cols}, std::shared_ptr<void>(data, std::free)};
}

void HostBackend::upload(const void* host, Tensor tensor) {
  const size_t row_bytes = static_cast<size_t>(tensor.cols) * size_of(tensor.dtype);
  for (int64_t r = 0; r < tensor.rows; ++r) {
    std::memcpy(static_cast<char*>(tensor.data) + static_cast<size_t>(r * tensor.stride) * size_of(tensor.dtype),
                static_cast<const char*>(host) + static_cast<size_t>(r) * row_bytes, row_bytes);
  }
}

void HostBackend::download(Tensor tensor, void* host) {
  const size_t row_bytes = static_cast<size_t>(tensor.cols) * size_of(tensor.dtype);
  for (int64_t r = 0; r < tensor.rows; ++r) {
    std::memcpy(static_cast<char*>(host) + static_cast<size_t>(r) * row_bytes,
                static_cast<const char*>(tensor.data) + static_cast<size_t>(r * tensor.stride) * size_of(tensor.dtype),
                row_bytes);
  }
}

void HostBackend::copy(Tensor from, Tensor to) {
  CHECK(from.rows == to.rows && from.cols == to.cols && from.dtype == to.dtype);
  CHECK(from.stride == from.cols && to.stride == to.cols);
  std::memcpy(to.data, from.data, static_cast<size_t>(from.size()) * size_of(from.dtype));
}

OwnedTensor HostBackend::place_vector(const HostTensor& vector) {
  CHECK(vector.dtype == DType::kBF16);
  OwnedTensor t = allocate(1, vector.size(), DType::kF32);
  const bf16* from = static_cast<const bf16*>(vector.data);
  float* to = t.view.row<float>(0);
  for (int64_t i = 0; i < t.view.cols; ++i) to[i] = to_float(from[i]);
  return t;
}

OwnedTensor HostBackend::place_table(const HostTensor& table) {
  CHECK(table.dtype == DType::kBF16 && table.shape.size() == 2);
  // Read in place; nothing writes to a placed table.
  return {{const_cast<void*>(table.data), DType::kBF16, table.shape[0], table.shape[1], table.shape[1]}, nullptr};
}

void advance_host_step(const Step& step) {
  for (int64_t r = 0; r < step.rows; ++r) {
    step.ids.row<int32_t>(r)[0] = std::max(0, step.sampled.row<int32_t>(r)[0]);
    for (int axis = 0; axis < 3; ++axis) ++step.positions.row<int32_t>(r)[axis];
    const int32_t index = step.lengths.row<int32_t>(r)[0];
    const int32_t* pages = step.page_table.row<int32_t>(step.sequences.row<int32_t>(r)[0]);
    const bool inside = index / kPageTokens < step.page_table.cols;
    if (inside) step.lengths.row<int32_t>(r)[0] = index + 1;
    step.slots.row<int32_t>(r)[0] = inside ? pages[index / kPageTokens] * kPageTokens + index % kPageTokens : -1;
  }
}

WeightMatrix weight_matrix(const HostTensor& t, ExpertLayout layout) {
  CHECK(t.dtype == DType::kBF16 && t.shape.size() == 2);
  const bf16* data = static_cast<const bf16*>(t.data);
  if (layout == ExpertLayout::kOutIn) return {data, t.shape[0], t.shape[1], t.shape[1], 1};
  return {data, t.shape[1], t.shape[0], 1, t.shape[1]};
}

WeightRow weight_row(const std::vector<WeightMatrix>& parts, int64_t out) {
  for (const WeightMatrix& m : parts) {
    if (out < m.out) return {&m, m.data ? m.data + out * m.out_stride : nullptr, out};
    out -= m.out;
  }
  CHECK(false);
  return {};
}

namespace {

const uint8_t* codes_of(const WeightRow& row) {
  const CodedMatrix& coded = row.matrix->coded;
  return coded.codes + row.index * code_bytes(coded.tier, row.matrix->in);
}

void decode(const WeightRow& row, bf16* to) {
  CHECK(row.matrix->coded.codes);
  const int64_t in = row.matrix->in, groups = tier_groups(in);
  std::vector<float> values(static_cast<size_t>(in));
  std::vector<bf16> scales(static_cast<size_t>(groups));
  row.matrix->coded.read_scales(row.index, groups, scales.data());
  dequantize_row(row.matrix->coded.tier, codes_of(row), scales.data(), in, values.data());
  std::transform(values.begin(), values.end(), to, to_bf16);
}

constexpr int64_t kTurnedAtOnce = 16;  // rows whose inputs are read together from the lines of memory that they share

// `count` neighbouring rows of a matrix that lies [in, out].
void gather_turned(const WeightRow& first, int64_t count, bf16* rows) {
  const int64_t in = first.matrix->in;
  for (int64_t begin = 0; begin < count; begin += kTurnedAtOnce) {
    const int64_t n = std::min(kTurnedAtOnce, count - begin);
    const bf16* from = first.data + begin * first.matrix->out_stride;
    for (int64_t i = 0; i < in; ++i, from += first.matrix->in_stride) {
      for (int64_t o = 0; o < n; ++o) rows[(begin + o) * in + i] = from[o * first.matrix->out_stride];
    }
  }
}

}  // namespace

void gather_rows(const std::vector<WeightMatrix>& parts, int64_t first, int64_t count, bf16* rows) {
  for (int64_t o = 0; o < count;) {
    const WeightRow row = weight_row(parts, first + o);
    const int64_t in = row.matrix->in;
    const bool is_turned = row.data && row.matrix->in_stride != 1;
    const int64_t n = is_turned ? std::min(count - o, row.matrix->out - row.index) : 1;
    if (is_turned) {
      gather_turned(row, n, rows + o * in);
    } else if (row.data) {
      std::copy_n(row.data, in, rows + o * in);
    } else {
      decode(row, rows + o * in);
    }
    o += n;
  }
}

void tier_rows(const std::vector<WeightMatrix>& parts, Tier tier, int64_t first, int64_t count, uint8_t* codes,
               bf16* scales) {
  const int64_t in = parts[0].in, groups = tier_groups(in);
  std::vector<bf16> gathered;
  int64_t gathered_first = 0, gathered_end = 0;
  for (int64_t o = 0; o < count; ++o, codes += code_bytes(tier, in), scales += groups) {
    const WeightRow row = weight_row(parts, first + o);
    if (row.matrix->coded.tier == tier) {
      std::copy_n(codes_of(row), code_bytes(tier, in), codes);
      row.matrix->coded.read_scales(row.index, groups, scales);
      continue;
    }
    const bf16* values = row.data;
    if (!row.data || row.matrix->in_stride != 1) {
      if (o >= gathered_end) {
        gathered_first = o;
        gathered_end = std::min(count, o + kTurnedAtOnce);
        gathered.resize(static_cast<size_t>((gathered_end - o) * in));
        gather_rows(parts, first + o, gathered_end - o, gathered.data());
      }
      values = gathered.data() + (o - gathered_first) * in;
    }
    quantize_row(tier, values, in, codes, scales, row.matrix->tensor_scale);
  }
}

HostLinear::HostLinear(int64_t in_features, int64_t out_features, std::vector<std::vector<WeightMatrix>> matrices,
                       std::vector<float> bias_values)
    : Linear(in_features, out_features, static_cast<int64_t>(matrices.size())),
      parts(std::move(matrices)),
      bias(std::move(bias_values)) {
  for (const auto& group : parts) {
    int64_t rows = 0;
    for (const WeightMatrix& m : group) {
      CHECK(m.in == in);
      rows += m.out;
    }
    CHECK(rows == out);
  }
  CHECK(bias.empty() || static_cast<int64_t>(bias.size()) == out);
}

std::unique_ptr<HostLinear> make_host_linear(const std::vector<HostTensor>& parts,
                                             const std::vector<HostTensor>& biases, const Role& role) {
  CHECK(role.coded.empty() || role.coded.size() == parts.size());
  std::vector<WeightMatrix> matrices;
  int64_t out = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    matrices.push_back(weight_matrix(parts[i], ExpertLayout::kOutIn));
    WeightMatrix& m = matrices.back();
    if (!role.coded.empty()) m.coded = role.coded[i];
    if (m.data && m.coded.tier != role.tier) m.tensor_scale = tensor_scale_of(role.tier, m.data, m.out * m.in);
    out += matrices.back().out;
  }
  std::vector<float> bias;
  for (const HostTensor& b : biases) {
    CHECK(b.dtype == DType::kBF16);
    const bf16* from = static_cast<const bf16*>(b.data);
    for (int64_t i = 0; i < b.size(); ++i) bias.push_back(to_float(from[i]));
  }
  const int64_t in = matrices.front().in;
  std::vector<std::vector<WeightMatrix>> groups;
  groups.push_back(std::move(matrices));
  return std::make_unique<HostLinear>(in, out, std::move(groups), std::move(bias));
}

namespace {

// The parts of an expert are one tensor here, as in a checkpoint that has them stacked.
void share_tensor_scale(std::vector<WeightMatrix>& parts, Tier tier) {
  if (tier != Tier::kNvfp4) return;
  bf16 largest = {};
  for (const WeightMatrix& m : parts) {
    const bool is_asked = m.data && m.coded.tier != tier;
    const bf16 of_part = is_asked ? largest_magnitude(m.data, m.out * m.in) : bf16{};
    if (to_float(of_part) > to_float(largest)) largest = of_part;
  }
  for (WeightMatrix& m : parts) m.tensor_scale = tensor_scale_of(tier, largest);
}

}  // namespace

std::unique_ptr<HostLinear> make_host_experts(const std::vector<std::vector<HostTensor>>& experts, ExpertLayout layout,
                                              const Role& role) {
  CHECK(role.coded.empty() || role.coded.size() == experts.size() * experts.front().size());
  std::vector<std::vector<WeightMatrix>> groups;
  auto coded = role.coded.begin();
  for (const auto& expert : experts) {
    std::vector<WeightMatrix> matrices;
    matrices.reserve(expert.size());
    for (const HostTensor& t : expert) {
      matrices.push_back(weight_matrix(t, layout));
      if (!role.coded.empty()) matrices.back().coded = *coded++;
    }
    share_tensor_scale(matrices, role.tier);
    groups.push_back(std::move(matrices));
  }
  int64_t out = 0;
  for (const WeightMatrix& m : groups.front()) out += m.out;
  const int64_t in = groups.front().front().in;
  return std::make_unique<HostLinear>(in, out, std::move(groups), std::vector<float>{});
}

}  // namespace vireo
