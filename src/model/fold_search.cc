// SPDX-License-Identifier: Apache-2.0
#include "model/fold_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "model/fitted_scales.h"

namespace vireo {
namespace {

constexpr int64_t kRows = 512;      // of the weights, that errors are taken on
constexpr int kAlphas = 8;          // steps from 0 to 1
constexpr int kPasses = 8;          // over all factors, at most
constexpr double kQuietest = 1e-4;  // of the largest input: smaller ones count as that

// The error of a projection's product as a function of its factors. It is a sum over groups of inputs, each with scales of its own.
class Search {
 public:
  explicit Search(const FoldTask& task)
      : task_(task),
        inputs_(task.parts[0].shape[1]),
        exponents_(static_cast<size_t>(task.maker.factors), 0),
        is_fixed_(exponents_.size(), 0),
        groups_of_(exponents_.size()),
        errors_(static_cast<size_t>(tier_groups(inputs_))) {
    sample_rows();
    for (const HostTensor& part : task.parts) fix_columns(part);
    fix_makers();
    for (int64_t c = 0; c < inputs_; ++c) {
      auto& groups = groups_of_[factor_of(c)];
      if (groups.empty() || groups.back() != c / kTierGroup) groups.push_back(c / kTierGroup);
    }
  }

  // Of all groups, with other factors from here on.
  double set(const std::vector<int8_t>& exponents) {
    exponents_ = exponents;
    for (size_t g = 0; g < errors_.size(); ++g) errors_[g] = error(static_cast<int64_t>(g));
    return total();
  }

  // (magnitude / geometric mean)^alpha of the inputs that share a factor.
  std::vector<int8_t> powers(double alpha) const {
    std::vector<double> squares(exponents_.size(), 0);
    for (int64_t c = 0; c < inputs_; ++c) squares[factor_of(c)] += task_.input_squares[static_cast<size_t>(c)];
    const double most = *std::max_element(squares.begin(), squares.end());
    std::vector<double> logs;
    logs.reserve(squares.size());
    for (const double s : squares)
      logs.push_back(most > 0 ? 0.5 * std::log2(std::max(s, most * kQuietest * kQuietest)) : 0);
    const double mean = std::accumulate(logs.begin(), logs.end(), 0.0) / static_cast<double>(logs.size());
    std::vector<int8_t> powers;
    powers.reserve(logs.size());
    for (size_t f = 0; f < logs.size(); ++f) {
      const double exponent = std::clamp<double>(std::round(alpha * (logs[f] - mean)), -kMostExponent, kMostExponent);
      powers.push_back(is_fixed_[f] ? int8_t{0} : static_cast<int8_t>(exponent));
    }
    return powers;
  }

  // One factor after the other by one step up or down, as long as that lessens the error.
  void descend() {
    for (int pass = 0; pass < kPasses; ++pass) {
      bool better = false;
      for (size_t f = 0; f < exponents_.size(); ++f) better |= step(f, 1) || step(f, -1);
      if (!better) return;
    }
  }

  // Without factors, and with the scales of quantize_row.
  double plain_error() const {
    double sum = 0;
    for (int64_t group = 0; group < static_cast<int64_t>(errors_.size()); ++group) {
      const int64_t first = group * kTierGroup, width = std::min(kTierGroup, inputs_ - first);
      for (int64_t r = 0; r < rows_; ++r) {
        const bf16* row = sample(group, r);
        float rounded[kTierGroup];
        round_to_tier(task_.tier, row, width, rounded);
        for (int64_t c = 0; c < width; ++c) {
          const double d = double{rounded[c]} - to_float(row[c]);
          sum += task_.input_squares[static_cast<size_t>(first + c)] * d * d;
        }
      }
    }
    return sum / energy_;
  }

  double total() const { return std::accumulate(errors_.begin(), errors_.end(), 0.0) / energy_; }
  const std::vector<int8_t>& exponents() const { return exponents_; }

 private:
  size_t factor_of(int64_t input) const {
    return static_cast<size_t>(task_.maker.factor_of[static_cast<size_t>(input)]);
  }

  // Into weights_: group after group, its rows of 16, the last group's filled up with zeros.
  void sample_rows() {
    int64_t out = 0;
    for (const HostTensor& part : task_.parts) out += part.shape[0];
    rows_ = std::min(out, kRows);
    weights_.resize(errors_.size() * static_cast<size_t>(rows_ * kTierGroup));
    for (int64_t r = 0; r < rows_; ++r) {
      const bf16* row = row_of(r * out / rows_);
      for (int64_t c = 0; c < inputs_; ++c) {
        weights_[static_cast<size_t>((c / kTierGroup * rows_ + r) * kTierGroup + c % kTierGroup)] = row[c];
        const double w = to_float(row[c]);
        energy_ += task_.input_squares[static_cast<size_t>(c)] * w * w;
      }
    }
    if (!(energy_ > 0)) energy_ = 1;
  }

  const bf16* sample(int64_t group, int64_t row) const { return weights_.data() + (group * rows_ + row) * kTierGroup; }

  const bf16* row_of(int64_t row) const {
    for (const HostTensor& part : task_.parts) {
      if (row < part.shape[0]) return static_cast<const bf16*>(part.data) + row * inputs_;
      row -= part.shape[0];
    }
    CHECK(false);
    return nullptr;
  }

  void fix_columns(const HostTensor& part) {
    const bf16* weights = static_cast<const bf16*>(part.data);
    for (int64_t i = 0; i < part.size(); ++i) {
      if (!may_be_folded(weights[i])) is_fixed_[factor_of(i % inputs_)] = 1;
    }
  }

  void fix_makers() {
    const bf16* weights = static_cast<const bf16*>(task_.maker_weights.data);
    const int64_t cols = std::max<int64_t>(1, task_.maker.cols);
    for (int64_t i = 0; i < task_.maker_weights.size(); ++i) {
      if (!may_be_folded(weights[i])) is_fixed_[static_cast<size_t>(i / cols)] = 1;
    }
  }

  double error(int64_t group) const {
    const int64_t first = group * kTierGroup, width = std::min(kTierGroup, inputs_ - first);
    Fold fold;
    float share[kTierGroup];
    for (int64_t c = 0; c < width; ++c) {
      fold.cols.push_back(exponents_[factor_of(first + c)]);
      share[c] = importance(first + c);
    }
    bf16 row[kTierGroup], scale;
    uint8_t codes[kTierGroup];
    double sum = 0;
    for (int64_t r = 0; r < rows_; ++r) {
      fold_row(fold, 0, sample(group, r), width, row);
      sum += quantize_row_fitted(task_.tier, row, share, width, codes, &scale);
    }
    return sum;
  }

  // Of an error of the folded weights of an input, in that of the product.
  float importance(int64_t input) const {
    const double squares = task_.input_squares[static_cast<size_t>(input)];
    return static_cast<float>(std::ldexp(squares, -2 * exponents_[factor_of(input)]));
  }

  bool step(size_t factor, int by) {
    const int exponent = exponents_[factor] + by;
    if (is_fixed_[factor] || std::abs(exponent) > kMostExponent) return false;
    exponents_[factor] = static_cast<int8_t>(exponent);
    std::vector<double> errors;
    double change = 0;
    for (const int64_t group : groups_of_[factor]) {
      errors.push_back(error(group));
      change += errors.back() - errors_[static_cast<size_t>(group)];
    }
    if (!(change < 0)) {
      exponents_[factor] = static_cast<int8_t>(exponent - by);
      return false;
    }
    for (size_t i = 0; i < errors.size(); ++i) errors_[static_cast<size_t>(groups_of_[factor][i])] = errors[i];
    return true;
  }

  const FoldTask& task_;
  const int64_t inputs_;
  int64_t rows_ = 0;
  double energy_ = 0;  // squares of the product
  std::vector<bf16> weights_;
  std::vector<int8_t> exponents_;
  std::vector<uint8_t> is_fixed_;
  std::vector<std::vector<int64_t>> groups_of_;  // by factor
  std::vector<double> errors_;                   // by group
};

}  // namespace

FoundFold find_fold(const FoldTask& task) {
  Search search(task);
  FoundFold found{.exponents = search.powers(0), .plain_error = search.plain_error()};
  found.error = search.set(found.exponents);
  for (int i = 1; i <= kAlphas; ++i) {
    const double alpha = static_cast<double>(i) / kAlphas;
    const std::vector<int8_t> exponents = search.powers(alpha);
    const double error = search.set(exponents);
    if (!(error < found.error)) continue;
    found.error = error;
    found.alpha = alpha;
    found.exponents = exponents;
  }
  search.set(found.exponents);
  search.descend();
  found.exponents = search.exponents();
  found.error = search.total();
  return found;
}

}  // namespace vireo
