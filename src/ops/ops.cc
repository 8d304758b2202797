// Default bodies of the fused members: what they mean, in primitives.
// SPDX-License-Identifier: Apache-2.0
#include "ops/ops.h"

namespace vireo {

void Ops::linear_add(const Linear& w, Tensor x, Tensor scratch, Tensor inout) {
  linear(w, x, scratch);
  add(scratch, inout);
}

void Ops::gate_up(const Linear& w, Tensor x, Tensor scratch, Tensor out) {
  linear(w, x, scratch);
  silu_mul(scratch, out);
}

void Ops::linear_gelu(const Linear& w, Tensor x, Gelu kind, Tensor out) {
  linear(w, x, out);
  gelu(out, kind);
}

void Ops::norm_rope_append(Tensor qkv, const Norm& q_norm, const Norm& k_norm, Tensor cos_sin, const Step& step,
                           const AttentionShape& shape, KvLayer cache) {
  const int64_t q_size = int64_t{shape.heads} * shape.head_dim;
  const int64_t kv_size = int64_t{shape.kv_heads} * shape.head_dim;
  const Tensor q = qkv.slice_cols(0, q_size);
  const Tensor k = qkv.slice_cols(q_size, kv_size);
  const Tensor v = qkv.slice_cols(q_size + kv_size, kv_size);
  rms_norm(q, q_norm, q);
  rms_norm(k, k_norm, k);
  rope(q, cos_sin, shape.head_dim);
  rope(k, cos_sin, shape.head_dim);
  append_kv(k, v, step, shape, cache);
}

}  // namespace vireo
