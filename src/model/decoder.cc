// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.h"

#include <cmath>

#include "model/mrope.h"

namespace vireo {

Decoder::Decoder(const ModelConfig& config, const DecoderWeights& weights, Backend& backend, const Shape& shape)
    : config_(config), weights_(weights), ops_(backend.ops()) {
  const TextConfig& c = config.text;
  const TextRope rope = text_rope(c);
  inv_freq_ = backend.allocate(1, c.head_dim / 2, DType::kF32);
  axis_ = backend.allocate(1, c.head_dim / 2, DType::kI32);
  backend.upload(rope.inv_freq.data(), inv_freq_.view);
  backend.upload(rope.axis.data(), axis_.view);

  for (const Scratch& s : scratch(c, shape, backend.activation_type(), backend.residual_type())) {
    this->*s.tensor = backend.allocate(s.rows, s.cols, s.dtype);
  }
  shape_ = attention_shape(c);
  for (int64_t i = 0; i < c.num_layers; ++i) caches_.push_back(backend.allocate_kv(shape.slots, shape_, shape.kv_mode));
}

std::vector<Decoder::Scratch> Decoder::scratch(const TextConfig& c, const Shape& shape, DType act, DType residual) {
  const int64_t rows = shape.max_rows, wanted = shape.max_wanted, k = c.experts_per_token;
  std::vector<Scratch> list = {{&Decoder::x_, rows, c.hidden_size, residual},
                               {&Decoder::h_, rows, c.hidden_size, act},
                               {&Decoder::qkv_, rows, c.q_size() + 2 * c.kv_size(), act},
                               {&Decoder::attn_, rows, c.q_size(), act},
                               {&Decoder::cos_sin_, rows, c.head_dim, DType::kF32},
                               {&Decoder::wanted_, wanted, c.hidden_size, residual},
                               {&Decoder::logits_, wanted, c.vocab_size, residual}};
  if (c.num_experts > 0) {
    list.push_back({&Decoder::router_, rows, c.num_experts, residual});
    list.push_back({&Decoder::expert_ids_, rows, k, DType::kI32});
    list.push_back({&Decoder::expert_weights_, rows, k, DType::kF32});
    list.push_back({&Decoder::expert_scratch_, rows * k, 3 * c.moe_intermediate_size + c.hidden_size, DType::kF32});
  } else {
    list.push_back({&Decoder::gate_up_, rows, 2 * c.intermediate_size, act});
    list.push_back({&Decoder::act_, rows, c.intermediate_size, act});
  }
  return list;
}

AttentionShape Decoder::attention_shape(const TextConfig& c) {
  return {.heads = static_cast<int>(c.num_heads),
          .kv_heads = static_cast<int>(c.num_kv_heads),
          .head_dim = static_cast<int>(c.head_dim),
          .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim))};
}

uint64_t Decoder::scratch_bytes(const TextConfig& c, const Shape& shape, DType act, DType residual) {
  uint64_t bytes = 0;
  for (const Scratch& s : scratch(c, shape, act, residual)) {
    bytes += static_cast<uint64_t>(s.rows * s.cols) * size_of(s.dtype);
  }
  return bytes;
}

uint64_t Decoder::kv_bytes_per_token(const TextConfig& c, DType kv_type, KvMode mode) {
  const uint64_t heads = static_cast<uint64_t>(2 * c.num_layers * c.num_kv_heads);
  const uint64_t scales = mode == KvMode::kInt8 ? heads * size_of(DType::kBF16) : 0;
  // Codes take the place of bf16; a backend of floats keeps what they stand for.
  const bool codes = mode == KvMode::kInt8 && kv_type == DType::kBF16;
  return heads * static_cast<uint64_t>(c.head_dim) * size_of(codes ? DType::kI8 : kv_type) + scales;
}

void Decoder::see(const char* name, size_t index, Tensor t) const {
  if (probe_) (*probe_)(name + std::to_string(index), t);
}

void Decoder::see_normed(const char* name, size_t index, const Norm& norm, Tensor x, Tensor h) const {
  if (!probe_) return;
  ops_.rms_norm(x, norm, h);
  see(name, index, h);
}

void Decoder::attention(const DecoderLayer& w, size_t index, const Step& step) {
  const Tensor x = rows_of(x_, step.rows), h = rows_of(h_, step.rows), qkv = rows_of(qkv_, step.rows);
  const Tensor attn = rows_of(attn_, step.rows);
  see_normed("lm.in.qkv_proj.", index, w.input_layernorm, x, h);
  ops_.norm_linear(w.input_layernorm, *w.qkv, x, h, qkv);
  ops_.norm_rope_attend(qkv, {w.q_norm, w.k_norm, rows_of(cos_sin_, step.rows)}, step, caches_[index].view, shape_,
                        attn);
  see("lm.in.o_proj.", index, attn);
  if (probe_) {
    ops_.linear(*w.o_proj, attn, h);
    see("lm.attn.", index, h);
  }
  ops_.linear_add(*w.o_proj, attn, h, x);
}

void Decoder::mlp(const DecoderLayer& w, size_t index, int64_t rows) {
  const Tensor x = rows_of(x_, rows), h = rows_of(h_, rows), act = rows_of(act_, rows);
  see_normed("lm.in.gate_up.", index, w.post_attention_layernorm, x, h);
  ops_.norm_gate_up(w.post_attention_layernorm, *w.gate_up, x, h, rows_of(gate_up_, rows), act);
  see("lm.in.mlp_down.", index, act);
  ops_.linear_add(*w.down_proj, act, h, x);
}

void Decoder::moe(const DecoderLayer& w, int64_t rows) {
  const int64_t k = config_.text.experts_per_token;
  const Tensor x = rows_of(x_, rows), h = rows_of(h_, rows), router = rows_of(router_, rows);
  const Tensor ids = rows_of(expert_ids_, rows), weights = rows_of(expert_weights_, rows);
  ops_.rms_norm(x, w.post_attention_layernorm, h);
  ops_.linear(*w.router, h, router);
  ops_.route(router, config_.text.norm_topk_prob, ids, weights);
  ops_.experts(*w.gate_up, *w.down_proj, h, ids, weights, rows_of(expert_scratch_, rows * k), x);
}

Tensor Decoder::forward(const Step& step) {
  const Tensor x = rows_of(x_, step.rows), h = rows_of(h_, step.rows);
  ops_.begin_rows(*weights_.embed_tokens, step, {inv_freq_.view, axis_.view}, x, rows_of(cos_sin_, step.rows));
  if (step.visual_rows.rows > 0) ops_.put_rows(step.features, step.visual_rows, x);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const PartScope part(ops_, "layer", static_cast<int64_t>(i));
    const DecoderLayer& layer = weights_.layers[i];
    attention(layer, i, step);
    if (layer.router) {
      moe(layer, step.rows);
    } else {
      mlp(layer, i, step.rows);
    }
    see("lm.layer.", i, x);
    if (step.visual_rows.rows > 0 && i < step.deepstack.size()) ops_.add_rows(step.deepstack[i], step.visual_rows, x);
  }
  if (step.wanted.rows == 0) return {};
  const PartScope part(ops_, "head");
  Tensor wanted = rows_of(wanted_, step.wanted.rows);
  const Tensor logits = rows_of(logits_, step.wanted.rows);
  // All rows: they are where they should be.
  if (step.wanted.rows == step.rows) {
    wanted = x;
  } else {
    ops_.gather_rows(x, step.wanted, wanted);
  }
  if (probe_) {
    ops_.rms_norm(wanted, weights_.norm, h.slice_rows(0, wanted.rows));
    (*probe_)("lm.norm", h.slice_rows(0, wanted.rows));
  }
  ops_.norm_linear(weights_.norm, weights_.head(), wanted, h.slice_rows(0, wanted.rows), logits);
  if (probe_) (*probe_)("logits", logits);
  return logits;
}

}  // namespace vireo
