// The seam between the model and the machine. Primitives are pure; fused members have a default body written in primitives,
// which is also their oracle. Operands are rows of the backend's activation type or, where they belong to the residual stream (what embed
// makes, what add, linear_add and experts change, what norms read) and for logits, of its residual type. An op never
// allocates, resizes or synchronises, and takes no scalar that changes between decode steps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/step.h"
#include "ops/weights.h"

namespace vireo {

class Ops {
 public:
  virtual ~Ops() = default;

  // Before the ops of a step: those of a decode step read weights in their tier, all others in BF16. At first it is not one.
  virtual void begin_step(bool /*decode*/) {}

  // For profilers: what is asked for from here to the end of the part belongs to it. Parts nest.
  virtual void begin_part(const char* /*name*/, int64_t /*index*/) {}
  virtual void end_part() {}

  // --- primitives ---
  // out[r] = row ids[r] of the table.
  virtual void embed(const Linear& table, const Step& step, Tensor out) = 0;
  // U8 [n, 3 * m] (channel-major rows) to values.
  virtual void normalize_pixels(Tensor bytes, const PixelScale& scale, Tensor out) = 0;
  // out = x W^T + b. 1 to 8 rows: the same bits per row whatever the number of rows.
  virtual void linear(const Linear& w, Tensor x, Tensor out) = 0;
  // out = w * x / sqrt(mean(x^2) + eps), over groups of norm.weight.cols columns. May be in place.
  virtual void rms_norm(Tensor x, const Norm& norm, Tensor out) = 0;
  // out = w * (x - mean) / sqrt(var + eps) + b. May be in place.
  virtual void layer_norm(Tensor x, const Norm& norm, Tensor out) = 0;
  // positions I32 [rows, axes] to F32 [rows, 2 n]: n cosines, then n sines.
  virtual void rope_angles(Tensor positions, const RopeTable& table, Tensor cos_sin) = 0;
  // Turns every head of x (cols a multiple of head_dim) in place; pairs are (j, j + head_dim / 2).
  virtual void rope(Tensor x, Tensor cos_sin, int head_dim) = 0;
  // Rows of k and v to cache rows step.slots; a row whose slot is -1 is not stored.
  virtual void append_kv(Tensor k, Tensor v, const Step& step, const AttentionShape& shape, KvLayer cache) = 0;
  // Softmax attention of row r over the first step.lengths[r] tokens of its sequence; query head g reads KV head
  // g / (heads / kv_heads). The row's own K and V are in the cache already.
  virtual void attend_cache(Tensor q, const Step& step, KvLayer cache, const AttentionShape& shape, Tensor out) = 0;
  // Attention without a mask inside each span; heads == kv_heads.
  virtual void attend_spans(Tensor q, Tensor k, Tensor v, Spans spans, const AttentionShape& shape, Tensor out) = 0;
  // x [rows, 2 n] -> out [rows, n] = silu(first half) * second half.
  virtual void silu_mul(Tensor x, Tensor out) = 0;
  virtual void gelu(Tensor x, Gelu kind) = 0;
  // inout += x
  virtual void add(Tensor x, Tensor inout) = 0;
  // inout[index[i]] += x[i]; index I32 [n], each row at most once.
  virtual void add_rows(Tensor x, Tensor index, Tensor inout) = 0;
  // inout[index[i]] = x[i]
  virtual void put_rows(Tensor x, Tensor index, Tensor inout) = 0;
  // out[i] = x[index[i]]
  virtual void gather_rows(Tensor x, Tensor index, Tensor out) = 0;
  // inout[r] += sum over c < 4 of weights[r][c] * table[taps[r][c]]; table BF16, taps I32 [rows, 4], weights F32 [rows, 4].
  virtual void add_positions(Tensor table, Tensor taps, Tensor weights, Tensor inout) = 0;
  // step.sampled[i] = argmax of logits row i, the lowest id on ties; -1 where a logit is not finite.
  virtual void sample(Tensor logits, const Step& step) = 0;
  // Makes a decode step the next one: ids from step.sampled, positions and lengths one further, new slots. A row beyond the
  // last page of its sequence gets the slot -1 and keeps its length: nothing is stored, and nothing more is seen.
  virtual void advance(const Step& step) = 0;
  // Per row the k largest of softmax(logits) (lower index on ties): ids I32 [rows, k] and weights F32 [rows, k].
  virtual void route(Tensor logits, bool renormalize, Tensor ids, Tensor weights) = 0;
  // inout[r] += sum over the k experts of row r of weight * down(silu(gate(x)) * up(x)); gate_up yields gate then up.
  // scratch: F32 [rows * k, 3 * down.in + down.out].
  virtual void experts(const Linear& gate_up, const Linear& down, Tensor x, Tensor ids, Tensor weights, Tensor scratch,
                       Tensor inout) = 0;

  // --- fused ---
  // What a step's rows begin with: x as embed makes it, and the angles of step.positions.
  virtual void begin_rows(const Linear& table, const Step& step, const RopeTable& rope, Tensor x, Tensor cos_sin);
  // inout += x W^T + b; scratch [rows, w.out].
  virtual void linear_add(const Linear& w, Tensor x, Tensor scratch, Tensor inout);
  // out = rms_norm(x) W^T + b; scratch [rows, w.in].
  virtual void norm_linear(const Norm& norm, const Linear& w, Tensor x, Tensor scratch, Tensor out);
  // h = rms_norm(x), out = silu(h Wg^T) * (h Wu^T), w yielding gate then up; h is scratch [rows, w.in], scratch [rows, w.out].
  virtual void norm_gate_up(const Norm& norm, const Linear& w, Tensor x, Tensor h, Tensor scratch, Tensor out);
  // out = gelu(x W^T + b)
  virtual void linear_gelu(const Linear& w, Tensor x, Gelu kind, Tensor out);
  // qkv [rows, (heads + 2 kv_heads) * head_dim]: norms and rotates q and k per head, appends k and v, and attends as attend_cache
  // does. What qkv holds afterwards is not defined.
  virtual void norm_rope_attend(Tensor qkv, const HeadNorms& norms, const Step& step, KvLayer cache,
                                const AttentionShape& shape, Tensor out);
};

// A part of the model, such as a layer, while it lives.
class PartScope {
 public:
  PartScope(Ops& ops, const char* name, int64_t index = -1) : ops_(ops) { ops_.begin_part(name, index); }
  ~PartScope() { ops_.end_part(); }
  PartScope(const PartScope&) = delete;
  PartScope& operator=(const PartScope&) = delete;

 private:
  Ops& ops_;
};

}  // namespace vireo
