// What a test of ops is made of: random inputs, poisoned outputs, steps and caches on one backend. The same seed makes the same
// values on every backend: all rows are representable in bf16.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/backend.h"

namespace vireo::testing_ops {

// |a - b| / |b|, infinite where the sizes differ.
double relative_error(const std::vector<float>& a, const std::vector<float>& b);

// Random rows, the same in a tier, and what that stands for.
struct CodedPart {
  CodedPart(Tier tier, int64_t out, int64_t in, uint32_t seed);

  HostTensor tensor(const bf16* data) const { return {"w", DType::kBF16, {out, in}, data}; }
  CodedMatrix coded() const {
    if (tier == Tier::kNvfp4) return {tier, codes.data(), narrow.data(), tensor_scale};
    return {tier, codes.data(), scales.data()};
  }

  Tier tier;
  int64_t out, in;
  std::vector<bf16> rows, rounded, scales;
  std::vector<uint8_t> codes, narrow;  // narrow: scales of nvfp4
  float tensor_scale;
};

// A matrix for each of several experts, in the layouts that checkpoints have.
class CodedExperts {
 public:
  CodedExperts(Tier tier, int count, int64_t out, int64_t in, uint32_t seed);

  using Tensors = std::vector<std::vector<HostTensor>>;
  Tensors rows() const;          // [out, in]
  Tensors halves() const;        // each in two parts
  Tensors turned() const;        // [in, out]
  Tensors rounded() const;       // what the codes stand for, [out, in]
  Tensors without_rows() const;  // codes alone
  std::vector<CodedMatrix> coded() const;
  std::vector<CodedMatrix> coded_halves() const;

  // W x of one expert in double precision, W being what the tier makes of the rows.
  std::vector<double> product(int32_t expert, const std::vector<double>& x) const;

 private:
  template <typename DataOf>
  Tensors each(DataOf data_of) const;

  std::vector<CodedPart> experts_;
  std::vector<std::vector<bf16>> turned_;
};

// Inputs and outputs of one run on one backend. Host weights live as long as the run. Around every row tensor lies NaN: what an
// op reads there shows in its result, and what it writes there shows in taken().
class Bench {
 public:
  Bench(Backend& backend, uint32_t seed) : backend_(backend), random_(seed) {}

  Backend& backend() { return backend_; }
  Ops& ops() { return backend_.ops(); }

  float normal(float scale = 1) { return scale * normal_(random_); }
  int32_t below(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint32_t>(n)); }
  // `count` different numbers below n.
  std::vector<int32_t> distinct_below(int32_t n, int64_t count);

  // Random rows, `stride` apart when given, of the activation type and of the residual type.
  Tensor activations(int64_t rows, int64_t cols, float scale = 1, int64_t stride = 0);
  Tensor residuals(int64_t rows, int64_t cols, float scale = 1, int64_t stride = 0);
  Tensor residuals_of(const std::vector<float>& values, int64_t rows, int64_t cols);
  // Outputs full of NaN.
  Tensor poisoned(int64_t rows, int64_t cols, int64_t stride = 0);
  Tensor poisoned_residuals(int64_t rows, int64_t cols, int64_t stride = 0);

  Tensor ints(const std::vector<int32_t>& values, int64_t rows, int64_t cols);
  Tensor floats(const std::vector<float>& values, int64_t rows, int64_t cols);
  Tensor bytes(const std::vector<uint8_t>& values, int64_t rows, int64_t cols);

  HostTensor weight(std::vector<int64_t> shape, float scale);
  // The stacked rows of outs[i] outputs each.
  std::unique_ptr<Linear> linear(const std::vector<int64_t>& outs, int64_t in, bool with_bias, const Role& role = {});
  Norm norm(int64_t n, bool with_bias);
  Tensor table(int64_t rows, int64_t cols);

  // A step of a row per length: row r sees lengths[r] tokens of the cache, pages in shuffled order.
  Step step(const std::vector<int32_t>& lengths, bool one_sequence);
  // A cache for the last step's pages, every slot filled with random rows, so that reading a wrong one shows.
  KvLayer cache(const AttentionShape& shape, KvMode mode = KvMode::kBf16);

  std::vector<float> read(Tensor t);
  void write(const std::vector<float>& values, Tensor t);

  // Every element, or all rows of a cache slot by slot, appended to what was taken before.
  void take(Tensor t);
  void take(KvLayer cache, const AttentionShape& shape);
  // All that was taken, and a NaN for each tensor that was written outside of its rows.
  std::vector<float> taken();

 private:
  Tensor keep(OwnedTensor t);
  Tensor put(const std::vector<float>& values, DType type, int64_t rows, int64_t cols, int64_t stride);
  Tensor random_rows(DType type, int64_t rows, int64_t cols, float scale, int64_t stride);
  Tensor poisoned_rows(DType type, int64_t rows, int64_t cols, int64_t stride);

  Backend& backend_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  std::deque<OwnedTensor> owned_;
  std::deque<OwnedKv> caches_;
  std::deque<std::vector<bf16>> weights_;
  struct Framed {
    Tensor whole;  // with a row and columns more than the tensor that was given out
    int64_t cols;
  };
  std::vector<Framed> framed_;
  std::vector<float> taken_;
  int64_t slots_ = 0;
};

}  // namespace vireo::testing_ops
