// SPDX-License-Identifier: Apache-2.0
#include "ops/runner.h"

namespace vireo {
namespace {

class EagerRunner : public Runner {
 public:
  EagerRunner(Backend& backend, Forward forward, const RunnerShape& shape)
      : backend_(backend),
        forward_(std::move(forward)),
        extend_(backend.allocate_step(shape.max_rows, shape.sequences, shape.pages)),
        decode_(backend.allocate_step(shape.sequences, shape.sequences, shape.pages)) {}

  void extend(const HostStep& rows) override {
    backend_.plan(rows, extend_);
    backend_.ops().begin_step(false);
    walk(extend_.step);
  }

  void seat(const HostStep& rows) override { backend_.plan(rows, decode_); }

  void decode() override {
    backend_.ops().begin_step(true);
    walk(decode_.step);
    backend_.ops().begin_step(false);
    backend_.ops().advance(decode_.step);
  }

  std::span<const int32_t> sampled() override {
    host_ids_.resize(static_cast<size_t>(sampled_.rows));
    if (sampled_.rows > 0) backend_.download(sampled_, host_ids_.data());
    return host_ids_;
  }

  Tensor logits() const override { return logits_; }

 private:
  void walk(const Step& step) {
    logits_ = forward_(step);
    sampled_ = step.sampled;
    if (sampled_.rows > 0) backend_.ops().sample(logits_, step);
  }

  Backend& backend_;
  Forward forward_;
  StepMemory extend_;
  StepMemory decode_;
  Tensor logits_;
  Tensor sampled_;
  std::vector<int32_t> host_ids_;
};

}  // namespace

std::unique_ptr<Runner> make_eager_runner(Backend& backend, Forward forward, const RunnerShape& shape) {
  return std::make_unique<EagerRunner>(backend, std::move(forward), shape);
}

}  // namespace vireo
