// Default bodies of the fused members: what they mean, in primitives.
// SPDX-License-Identifier: Apache-2.0
#include "ops/ops.h"

namespace vireo {

void Ops::linear_add(const Linear& w, Tensor x, Tensor scratch, Tensor inout) {
  linear(w, x, scratch);
  add(scratch, inout);
}

void Ops::norm_linear(const Norm& norm, const Linear& w, Tensor x, Tensor scratch, Tensor out) {
  rms_norm(x, norm, scratch);
  linear(w, scratch, out);
}

void Ops::norm_gate_up(const Norm& norm, const Linear& w, Tensor x, Tensor h, Tensor scratch, Tensor out) {
  norm_linear(norm, w, x, h, scratch);
  silu_mul(scratch, out);
}

void Ops::linear_gelu(const Linear& w, Tensor x, Gelu kind, Tensor out) {
  linear(w, x, out);
  gelu(out, kind);
}

void Ops::begin_rows(const Linear& table, const Step& step, const RopeTable& rope, Tensor x, Tensor cos_sin) {
  embed(table, step, x);
  rope_angles(step.positions, rope, cos_sin);
}

void Ops::norm_rope_attend(Tensor qkv, const HeadNorms& norms, const Step& step, KvLayer cache,
                           const AttentionShape& shape, Tensor out) {
  const int64_t q_size = int64_t{shape.heads} * shape.head_dim;
  const int64_t kv_size = int64_t{shape.kv_heads} * shape.head_dim;
  const Tensor q = qkv.slice_cols(0, q_size);
  const Tensor k = qkv.slice_cols(q_size, kv_size);
  const Tensor v = qkv.slice_cols(q_size + kv_size, kv_size);
  rms_norm(q, norms.q, q);
  rms_norm(k, norms.k, k);
  rope(q, norms.cos_sin, shape.head_dim);
  rope(k, norms.cos_sin, shape.head_dim);
  append_kv(k, v, step, shape, cache);
  attend_cache(q, step, cache, shape, out);
}

}  // namespace vireo
