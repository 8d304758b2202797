// GraphRunner: records the decode step as a CUDA graph, once per number of rows (and once more where ids are drawn), and replays it; where it is
// asked to, also the latest kinds of prefill. Everything that changes between steps lies in device memory, so one graph serves every position. Ids come back through a ring in page-locked memory that
// the host watches.
// SPDX-License-Identifier: Apache-2.0
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cuda/cuda_backend.h"
#include "cuda/drawing.h"
#include "cuda/recording.h"
#include "vireo/error.h"

namespace vireo {
namespace cuda {
namespace {

constexpr int kRingSlots = 16;

// A named stretch of host time for the vendor's profilers.
class Range {
 public:
  explicit Range(const char* name) { nvtxRangePushA(name); }
  ~Range() { nvtxRangePop(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

// The ids of finished steps.
class Ring {
 public:
  explicit Ring(DeviceMemory& memory) : memory_(memory), counter_memory_(memory.take(4)) {
    CUDA_CHECK(cudaHostAlloc(reinterpret_cast<void**>(&words_), kRingSlots * kGemvRows * 8, cudaHostAllocMapped));
    std::fill_n(words_, kRingSlots * kGemvRows, uint64_t{0});
    CUDA_CHECK(cudaHostGetDevicePointer(reinterpret_cast<void**>(&device_words_), words_, 0));
    CUDA_CHECK(cudaMemsetAsync(counter_memory_.get(), 0, 4, memory.stream()));
  }
  ~Ring() {
    cudaStreamSynchronize(memory_.stream());
    cudaFreeHost(words_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  IdRing on_device() const { return {device_words_, kRingSlots, static_cast<int32_t*>(counter_memory_.get())}; }

  // Waits for the id of row `row` of step `number` (from 0).
  int32_t wait(int64_t number, int64_t row) const {
    const volatile uint64_t& word = words_[number % kRingSlots * kGemvRows + row];
    const auto has_come = [&] { return static_cast<int32_t>(word >> 32) == static_cast<int32_t>(number + 1); };
    for (int64_t spins = 1; !has_come(); ++spins) {
      if (spins % 1024 != 0) continue;
      const cudaError_t state = cudaStreamQuery(memory_.stream());
      if (state == cudaErrorNotReady) {
        std::this_thread::yield();
        continue;
      }
      CUDA_CHECK(state);
      // All work is done: the id is there now, or will never be.
      CHECK(has_come());
    }
    return static_cast<int32_t>(word);
  }

 private:
  DeviceMemory& memory_;
  std::shared_ptr<void> counter_memory_;
  uint64_t* words_ = nullptr;
  uint64_t* device_words_ = nullptr;
};

class GraphRunner : public Runner {
 public:
  GraphRunner(CudaBackendBase& backend, Forward forward, const RunnerShape& shape)
      : backend_(backend),
        shape_(shape),
        forward_(std::move(forward)),
        ring_(backend.memory()),
        extend_(backend.allocate_step(shape.max_rows, shape.sequences, shape.pages)),
        decode_(backend.allocate_step(shape.sequences, shape.sequences, shape.pages)) {
    CHECK(shape.sequences <= kGemvRows);
    backend.tune();
  }

  ~GraphRunner() override {
    cudaStreamSynchronize(backend_.memory().stream());
    drop_graphs();
  }

  void extend(const HostStep& rows) override {
    const Range range("extend");
    forget_steps_ahead();
    backend_.plan(rows, extend_);
    const bool drawn =
        std::ranges::any_of(rows.wanted, [&](int32_t row) { return draws(rows.sequences[static_cast<size_t>(row)]); });
    if (shape_.recorded_extends > 0) {
      replay_extend(kind_of(extend_.step, drawn), drawn);
    } else {
      walk(extend_.step, drawn);
    }
    decoding_ = false;
  }

  void seat(const HostStep& rows) override {
    forget_steps_ahead();
    backend_.plan(rows, decode_);
    decode_draws_ = std::ranges::any_of(rows.sequences, [&](int32_t s) { return draws(s); });
  }

  bool choose_by(int32_t sequence, const Choice& choice) override {
    CHECK(sequence >= 0 && sequence < shape_.sequences);
    if (!drawing_ && is_greedy(choice.sampling)) return true;
    if (!drawing_) drawing_.emplace(backend_, shape_.sequences, shape_.vocab);
    drawing_->begin(sequence, choice);
    return true;
  }

  void rehearse() override { recorded_step(); }

  void decode() override {
    const Range range("decode");
    const Recorded& step = recorded_step();
    for (++decoded_; begun_ < decoded_ + ahead_; ++begun_) {
      step.recording->replay();
    }
    logits_ = step.logits;
    decoding_ = true;
  }

  void run_ahead(int64_t steps) override {
    CHECK(steps >= 0 && steps < kRingSlots - 1);
    ahead_ = steps;
  }

  std::span<const int32_t> sampled() override {
    host_ids_.resize(static_cast<size_t>(decoding_ ? decode_.step.rows : sampled_.rows));
    if (decoding_) {
      for (size_t r = 0; r < host_ids_.size(); ++r) host_ids_[r] = ring_.wait(decoded_ - 1, static_cast<int64_t>(r));
    } else if (sampled_.rows > 0) {
      backend_.download(sampled_, host_ids_.data());
    }
    return host_ids_;
  }

  Tensor logits() const override { return logits_; }

  Recordings recordings() const override {
    Recordings all{static_cast<int>(recorded_.size() + recorded_extends_.size()), begun_, 0};
    for (const auto& [kind, recorded] : recorded_) all.bytes += recorded.recording->bytes();
    for (const auto& [kind, recorded] : recorded_extends_) all.bytes += recorded.recording->bytes();
    return all;
  }
  void forget_recordings() override {
    CUDA_CHECK(cudaStreamSynchronize(backend_.memory().stream()));
    forget_steps_ahead();
    drop_graphs();
  }

 private:
  using Kind = std::pair<int64_t, bool>;  // rows, and whether ids of one are drawn
  struct Recorded {
    std::unique_ptr<Recording> recording;
    Tensor logits;
  };
  using ExtendKind = std::vector<int64_t>;
  using RecordedExtend = std::pair<ExtendKind, Recorded>;

  const Recorded& recorded_step() {
    backend_.memory().use();
    const Kind kind = {decode_.step.rows, decode_draws_};
    if (!recorded_.count(kind)) record(kind);
    return recorded_.at(kind);
  }

  void drop_graphs() {
    recorded_.clear();
    recorded_extends_.clear();
  }

  void forget_steps_ahead() {
    ahead_ = 0;
    decoded_ = begun_;
  }

  bool draws(int32_t sequence) const { return drawing_ && drawing_->draws(sequence); }

  void walk(const Step& step, bool draws) {
    logits_ = forward_(step);
    sampled_ = step.sampled;
    if (sampled_.rows == 0) return;
    if (draws) return backend_.cuda_ops().draw(logits_, step, drawing_->scratch(), {});
    backend_.ops().sample(logits_, step);
  }

  void step(bool draws) {
    logits_ = forward_(decode_.step);
    sampled_ = decode_.step.sampled;
    const IdRing ring = ring_.on_device();
    if (draws) return backend_.cuda_ops().draw(logits_, decode_.step, drawing_->scratch(), ring);
    backend_.cuda_ops().finish_step(logits_, decode_.step, ring);
  }

  // The same sizes, and the same memory of what is not the step's own.
  ExtendKind kind_of(const Step& step, bool draws) const {
    ExtendKind kind = {step.rows, step.wanted.rows, step.visual_rows.rows, draws};
    for (const Tensor& t : step.deepstack) kind.push_back(reinterpret_cast<int64_t>(t.data));
    kind.push_back(reinterpret_cast<int64_t>(step.features.data));
    return kind;
  }

  // The latest kinds are kept, the most recent first.
  void replay_extend(const ExtendKind& kind, bool draws) {
    auto at = std::ranges::find(recorded_extends_, kind, &RecordedExtend::first);
    if (at == recorded_extends_.end()) {
      const Range range("record");
      auto recording = std::make_unique<Recording>(backend_.memory().stream(), [&] { walk(extend_.step, draws); });
      recorded_extends_.emplace_front(kind, Recorded{std::move(recording), logits_});
      if (static_cast<int>(recorded_extends_.size()) > shape_.recorded_extends) {
        CUDA_CHECK(cudaStreamSynchronize(backend_.memory().stream()));
        recorded_extends_.pop_back();
      }
    } else {
      recorded_extends_.splice(recorded_extends_.begin(), recorded_extends_, at);
    }
    recorded_extends_.front().second.recording->replay();
    logits_ = recorded_extends_.front().second.logits;
    sampled_ = extend_.step.sampled;
  }

  void record(Kind kind) {
    const Range range("record");
    CudaOps& ops = backend_.cuda_ops();
    const auto one_step = [&] {
      try {
        ops.begin_step(true);
        ops.begin_chain();
        step(kind.second);
        ops.finish_chain();
        ops.begin_step(false);
      } catch (...) {
        ops.begin_step(false);
        ops.forget_chain();
        throw;
      }
    };
    auto recording = std::make_unique<Recording>(backend_.memory().stream(), one_step);
    recorded_[kind] = {std::move(recording), logits_};
  }

  CudaBackendBase& backend_;
  const RunnerShape shape_;
  Forward forward_;
  Ring ring_;
  StepMemory extend_;
  StepMemory decode_;
  std::optional<Drawing> drawing_;  // once one is asked for
  bool decode_draws_ = false;
  std::map<Kind, Recorded> recorded_;
  std::list<RecordedExtend> recorded_extends_;
  Tensor logits_;
  Tensor sampled_;
  std::vector<int32_t> host_ids_;
  bool decoding_ = false;
  int64_t decoded_ = 0;  // steps asked for
  int64_t begun_ = 0;    // steps launched
  int64_t ahead_ = 0;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Runner> make_graph_runner(Backend& backend, Forward forward, const RunnerShape& shape) {
  auto* cuda_backend = dynamic_cast<cuda::CudaBackendBase*>(&backend);
  CHECK(cuda_backend);
  return std::make_unique<cuda::GraphRunner>(*cuda_backend, std::move(forward), shape);
}

}  // namespace vireo
