// cuda_step_bench [--tune] [--int8-kv] [--tokens N] [TIER...]: one decode step at the shape of Qwen3-VL-2B on a GPU, with weights in BF16
// or in each tier named, with an int8 cache, and as the last of N tokens (1581).
// Times each part, recorded over all layers, then the whole, launch by launch and in one: microseconds and how far apart most
// replays are, bytes read, share of the device's read rate. Last come replays in a row, as a program decodes, and tokens a second
// by them. --tune first finds the cuts of the products with which the whole
// step is fastest.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_context.h"
#include "cuda/recording.h"

namespace vireo::cuda {
namespace {

constexpr int64_t kLayers = 28, kHidden = 2048, kInner = 6144, kVocabulary = 151936;
constexpr AttentionShape kShape{16, 8, 128, 0.0883883f};
constexpr int64_t kQ = int64_t{kShape.heads} * kShape.head_dim,
                  kQkv = kQ + 2 * int64_t{kShape.kv_heads} * kShape.head_dim;

struct Layer {
  std::unique_ptr<Linear> qkv, o, gate_up, down;
  OwnedKv kv;
};

class DecodeStep {
 public:
  DecodeStep(CudaBackendBase& backend, Tier tier, KvMode kv_mode, int64_t tokens)
      : b_(backend), ops_(backend.cuda_ops()), tier_(tier) {
    ops_.begin_step(true);
    values_.resize(static_cast<size_t>(kVocabulary * kHidden));
    uint32_t state = 1;
    for (bf16& v : values_) {
      state = state * 1664525u + 1013904223u;
      v = to_bf16((static_cast<float>(state >> 8) / (1 << 23) - 1) * 0.05f);
    }
    const int64_t pages = std::max<int64_t>(64, (tokens + kPageTokens - 1) / kPageTokens);
    for (int64_t i = 0; i < kLayers; ++i) {
      layers_.push_back({matrix(kQkv, kHidden, "qkv_proj"), matrix(kHidden, kQ, "o_proj"),
                         matrix(2 * kInner, kHidden, "gate_up"), matrix(kHidden, kInner, "mlp_down"),
                         b_.allocate_kv(pages * kPageTokens, kShape, kv_mode)});
    }
    head_ = matrix(kVocabulary, kHidden, "lm_head");
    norm_ = {b_.place_vector({"n", DType::kBF16, {kHidden}, values_.data()}), {}};
    x_ = b_.allocate(1, kHidden, DType::kF32);
    std::vector<float> x(kHidden, 0.5f);
    b_.upload(x.data(), x_.view);
    h_ = b_.allocate(1, kHidden, DType::kBF16);
    qkv_ = b_.allocate(1, kQkv, DType::kBF16);
    attn_ = b_.allocate(1, kQ, DType::kBF16);
    gate_up_ = b_.allocate(1, 2 * kInner, DType::kBF16);
    act_ = b_.allocate(1, kInner, DType::kBF16);
    logits_ = b_.allocate(1, kVocabulary, DType::kF32);
    cos_sin_ = b_.allocate(1, kShape.head_dim, DType::kF32);
    embedding_ = b_.place({{"w", DType::kBF16, {kVocabulary, kHidden}, values_.data()}}, {}, {});
    inv_freq_ = b_.allocate(1, kShape.head_dim / 2, DType::kF32);
    axis_ = b_.allocate(1, kShape.head_dim / 2, DType::kI32);
    const std::vector<float> frequencies(static_cast<size_t>(kShape.head_dim / 2), 0.01f);
    b_.upload(frequencies.data(), inv_freq_.view);
    const std::vector<int32_t> axes(static_cast<size_t>(kShape.head_dim / 2), 0);
    b_.upload(axes.data(), axis_.view);
    for (const OwnedTensor* t : {&qkv_, &attn_, &act_}) b_.upload(values_.data(), t->view);
    std::vector<float> angles(static_cast<size_t>(kShape.head_dim), 0.7f);
    b_.upload(angles.data(), cos_sin_.view);
    memory_ = b_.allocate_step(1, 1, pages);
    HostStep host;
    host.ids = {7};
    host.positions = {{85, 85, 85}};
    host.sequences = {0};
    host.cache_indices = {static_cast<int32_t>(tokens - 1)};
    host.wanted = {0};
    b_.plan(host, memory_);
  }

  Norm norm() const { return {norm_.tensor.view, {}, 1e-6f}; }
  void qkv(const Layer& l) { ops_.norm_linear(norm(), *l.qkv, x_.view, h_.view, qkv_.view); }
  void attend(const Layer& l) {
    const Norm n{norm_.tensor.view.slice_cols(0, kShape.head_dim), {}, 1e-6f};
    ops_.norm_rope_attend(qkv_.view, {n, n, cos_sin_.view}, memory_.step, l.kv.view, kShape, attn_.view);
  }
  void o(const Layer& l) { ops_.linear_add(*l.o, attn_.view, h_.view, x_.view); }
  void gate_up(const Layer& l) { ops_.norm_gate_up(norm(), *l.gate_up, x_.view, h_.view, gate_up_.view, act_.view); }
  void down(const Layer& l) { ops_.linear_add(*l.down, act_.view, h_.view, x_.view); }
  void head() { ops_.norm_linear(norm(), *head_, x_.view, h_.view, logits_.view); }
  void sample() { ops_.sample(logits_.view, memory_.step); }

  // Of replays of the recorded work: the median, and between which microseconds four fifths of them lie.
  struct Time {
    double median, least, most;
  };
  Time time(const std::function<void()>& work, int runs = 15) {
    const cudaStream_t stream = b_.memory().stream();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    work();
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    std::vector<double> us;
    for (int i = 0; i < runs; ++i) {
      us.push_back(1e6 * median_seconds(ops_.queue(), 1, [&] { CUDA_CHECK(cudaGraphLaunch(exec, stream)); }));
    }
    CUDA_CHECK(cudaStreamSynchronize(stream));
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    std::sort(us.begin(), us.end());
    const size_t tenth = us.size() / 10;
    return {us[us.size() / 2], us[tenth], us[us.size() - 1 - tenth]};
  }
  Time time_layers(const std::function<void(const Layer&)>& work) {
    return time([&] {
      for (const Layer& l : layers_) work(l);
    });
  }
  Time whole(bool chained = false, int runs = 15) {
    return time([&] { step(chained); }, runs);
  }
  // Microseconds of one of many replays, one right after the other, each of `steps` steps with what they begin with.
  double in_a_row(int steps, bool begins = true) {
    constexpr int kReplays = 64;
    const Recording recording(b_.memory().stream(), [&] {
      for (int i = 0; i < steps; ++i) {
        if (begins) ops_.begin_rows(*embedding_, memory_.step, {inv_freq_.view, axis_.view}, x_.view, cos_sin_.view);
        step(true);
      }
    });
    const double seconds = median_seconds(ops_.queue(), 5, [&] {
      for (int i = 0; i < kReplays; ++i) recording.replay();
    });
    return 1e6 * seconds / (kReplays * steps);
  }

 private:
  void step(bool chained) {
    if (chained) ops_.begin_chain();
    for (const Layer& l : layers_) {
      qkv(l);
      attend(l);
      o(l);
      gate_up(l);
      down(l);
    }
    head();
    sample();
    if (chained) ops_.finish_chain();
  }
  std::unique_ptr<Linear> matrix(int64_t out, int64_t in, const std::string& projection) {
    return b_.place({{"w", DType::kBF16, {out, in}, values_.data()}}, {}, {0, projection, tier_});
  }

  struct OwnedNorm {
    OwnedTensor tensor;
    Tensor none;
  };
  CudaBackendBase& b_;
  CudaOps& ops_;
  const Tier tier_;
  std::vector<bf16> values_;
  std::vector<Layer> layers_;
  std::unique_ptr<Linear> head_, embedding_;
  OwnedNorm norm_;
  OwnedTensor x_, h_, qkv_, attn_, gate_up_, act_, logits_, cos_sin_, inv_freq_, axis_;
  StepMemory memory_;
};

void report(const char* name, const DecodeStep::Time& time, double bytes, double rate) {
  const double us = time.median;
  fmt::print("{:<13} {:7.1f} us ({:.1f} to {:.1f}) {:8.1f} MB {:5.0f} GB/s {:4.0f} %\n", name, us, time.least,
             time.most, bytes * 1e-6, bytes / us * 1e-3, 100 * bytes / us * 1e6 / rate);
}

}  // namespace

void run(Tier tier, KvMode kv_mode, int64_t tokens, bool tunes) {
  const auto made = make_cuda_backend({});
  auto& backend = dynamic_cast<CudaBackendBase&>(*made);
  const double rate = backend.measure_read_rate();
  fmt::print("{}, {}, read {:.0f} GB/s\n", tier_name(tier), backend.description(), rate * 1e-9);
  DecodeStep step(backend, tier, kv_mode, tokens);
  CudaOps& ops = backend.cuda_ops();
  const double weight = tier_bits(tier) / 8, layer_qkv = weight * kQkv * kHidden, layer_o = weight * kQ * kHidden,
               layer_gate = weight * 2 * kInner * kHidden, layer_down = weight * kInner * kHidden,
               kv = 2.0 * static_cast<double>(tokens) * kShape.kv_heads *
                    (kv_mode == KvMode::kInt8 ? kShape.head_dim + 2 : kShape.head_dim * 2),
               head = weight * kVocabulary * kHidden;
  const double L = kLayers;
  struct Product {
    const char* name;
    std::pair<int64_t, int64_t> shape;
    std::function<void(const Layer&)> run;
    double bytes;
  };
  const std::vector<Product> products = {
      {"qkv", {kQkv, kHidden}, [&](const Layer& l) { step.qkv(l); }, L * layer_qkv},
      {"o", {kHidden, kQ}, [&](const Layer& l) { step.o(l); }, L * layer_o},
      {"gate_up", {2 * kInner, kHidden}, [&](const Layer& l) { step.gate_up(l); }, L * layer_gate},
      {"down", {kHidden, kInner}, [&](const Layer& l) { step.down(l); }, L * layer_down},
      {"head", {kVocabulary, kHidden}, {}, head}};
  const double all = L * (layer_qkv + layer_o + layer_gate + layer_down + kv) + head;
  // One product after the other gets the cut with which the whole step is fastest.
  for (const Product& p : products) {
    if (tunes) ops.shapes()[p.shape] = {3, 8, 2};
  }
  double best = step.whole().median;
  for (int round = 0; tunes && round < 2; ++round) {
    for (const Product& p : products) {
      GemvShape chosen = ops.shapes()[p.shape];
      for (int depth : {2, 3, 4, 5, 6}) {
        for (int blocks : {1, 2, 3}) {
          ops.shapes()[p.shape] = {depth, 8, blocks};
          const double us = step.whole().median;
          if (us >= best) continue;
          best = us;
          chosen = ops.shapes()[p.shape];
        }
      }
      ops.shapes()[p.shape] = chosen;
    }
  }
  for (const Product& p : products) {
    const GemvShape s = ops.shape_of(p.shape);
    const DecodeStep::Time us = p.run ? step.time_layers(p.run) : step.time([&] { step.head(); });
    fmt::print("depth {} blocks {} ", s.depth, s.blocks_per_processor);
    report(p.name, us, p.bytes, rate);
  }
  report("attend", step.time_layers([&](const Layer& l) { step.attend(l); }), L * kv, rate);
  report("attend, o", step.time_layers([&](const Layer& l) { step.attend(l), step.o(l); }), L * (kv + layer_o), rate);
  report("products", step.time_layers([&](const Layer& l) { step.qkv(l), step.o(l), step.gate_up(l), step.down(l); }),
         L * (layer_qkv + layer_o + layer_gate + layer_down), rate);
  report("head, sample", step.time([&] { step.head(), step.sample(); }), head, rate);
  report("whole", step.whole(false, 101), all, rate);
  const DecodeStep::Time one = step.whole(true, 101);
  report("in one launch", one, all, rate);
  const double in_a_row = step.in_a_row(1);
  fmt::print("replays in a row {:.1f} us, without what a step begins with {:.1f}, of 4 steps each {:.1f}\n", in_a_row,
             step.in_a_row(1, false), step.in_a_row(4));
  fmt::print("{:.0f} tokens/s\n", 1e6 / in_a_row);
}

}  // namespace vireo::cuda

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  bool tunes = false;
  int64_t tokens = 1581;
  auto kv_mode = vireo::KvMode::kBf16;
  std::vector<vireo::Tier> tiers;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    const auto tier = vireo::find_tier(a);
    if (a == "--tune") {
      tunes = true;
    } else if (a == "--int8-kv") {
      kv_mode = vireo::KvMode::kInt8;
    } else if (a == "--tokens" && i + 1 < arguments.size()) {
      const std::string& value = arguments[++i];
      const char* end = value.data() + value.size();
      const auto read = std::from_chars(value.data(), end, tokens);
      if (read.ec != std::errc() || read.ptr != end || tokens < 1 || tokens > 1 << 20) {
        fmt::print(stderr, "--tokens {} is not a number of tokens: use one from 1 to {}\n", value, 1 << 20);
        return 2;
      }
    } else if (tier) {
      tiers.push_back(*tier);
    } else {
      fmt::print(stderr, "unknown argument '{}'\n", a);
      return 2;
    }
  }
  if (tiers.empty()) tiers.push_back(vireo::Tier::kBf16);
  for (const vireo::Tier tier : tiers) vireo::cuda::run(tier, kv_mode, tokens, tunes);
}
