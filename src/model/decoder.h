// The decoder: token rows to logits, dense or mixture of experts, with DeepStack rows added after the first layers.
// Reference: Qwen3VLTextModel and Qwen3VLMoeTextModel of Hugging Face transformers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "model/probe.h"
#include "model/weights.h"

namespace vireo {

class Decoder {
 public:
  // Scratch for steps of up to `max_rows` rows of which up to `max_wanted` need logits, and a KV cache of `slots` tokens.
  struct Shape {
    int64_t max_rows = 0;
    int64_t max_wanted = 1;
    int64_t slots = 0;
    KvMode kv_mode = KvMode::kBf16;
  };
  Decoder(const ModelConfig& config, const DecoderWeights& weights, Backend& backend, const Shape& shape);

  // Logits [wanted, vocab], valid until the next call. Null tensor when no row is wanted.
  Tensor forward(const Step& step);

  // Seen by every forward until changed; null: none.
  void set_probe(const Probe* probe) { probe_ = probe; }

  // For tests and tools.
  KvLayer cache(size_t layer) const { return caches_[layer].view; }
  const AttentionShape& shape() const { return shape_; }

  static AttentionShape attention_shape(const TextConfig& config);
  static uint64_t kv_bytes_per_token(const TextConfig& config, DType kv_type, KvMode mode);
  // Bytes of a step's scratch, for a backend of these activation and residual types.
  static uint64_t scratch_bytes(const TextConfig& config, const Shape& shape, DType activation, DType residual);

 private:
  struct Scratch {
    OwnedTensor Decoder::*tensor;
    int64_t rows, cols;
    DType dtype;
  };
  static std::vector<Scratch> scratch(const TextConfig& config, const Shape& shape, DType activation, DType residual);
  void attention(const DecoderLayer& layer, size_t index, const Step& step);
  void mlp(const DecoderLayer& layer, size_t index, int64_t rows);
  void moe(const DecoderLayer& layer, int64_t rows);
  Tensor rows_of(const OwnedTensor& t, int64_t rows) const { return t.view.slice_rows(0, rows); }
  void see(const char* name, size_t index, Tensor t) const;
  // What a product reads that the norm of x is part of; in h.
  void see_normed(const char* name, size_t index, const Norm& norm, Tensor x, Tensor h) const;

  const ModelConfig& config_;
  const DecoderWeights& weights_;
  Ops& ops_;
  const Probe* probe_ = nullptr;
  OwnedTensor inv_freq_, axis_;
  OwnedTensor x_, h_, qkv_, attn_, gate_up_, act_, cos_sin_, wanted_, logits_;
  OwnedTensor router_, expert_ids_, expert_weights_, expert_scratch_;
  AttentionShape shape_;
  std::vector<OwnedKv> caches_;
};

}  // namespace vireo
