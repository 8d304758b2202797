// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_ops.h"

#include "base/check.h"

namespace vireo::cuda {
namespace {

const CudaLinear& on_device(const Linear& w) {
  return static_cast<const CudaLinear&>(w);
}

}  // namespace

GemvShape CudaOps::shape_of(const CudaLinear& w) const {
  const auto found = shapes_.find({w.out, w.in});
  if (found != shapes_.end()) return found->second;
  // As timed over whole steps on one H200 (bench/ops/cuda_step_bench.cc).
  if (queue_.bulk_copies)
    return {.depth = w.out > 65536 ? 2 : w.out > 8192 ? 5 : 4, .warps = 8, .blocks_per_processor = 2};
  return {.depth = 8, .warps = 8, .blocks_per_processor = 2};
}

void CudaOps::few_rows(const CudaLinear& w, Tensor x, const Norm* norm, Into into, Tensor out) {
  const auto gemv = queue_.bulk_copies ? gemv_bulk : gemv_copies;
  gemv(queue_, w, x, norm, into, out, shape_of(w));
}

void CudaOps::multiply(const Linear& linear, Tensor x, Into into, Tensor out) {
  const CudaLinear& w = on_device(linear);
  CHECK(x.cols == w.in && x.rows == out.rows);
  if (x.rows <= kGemvRows) {
    few_rows(w, x, nullptr, into, out);
  } else {
    gemm(queue_, w, x, into, out);
  }
}

void CudaOps::norm_multiply(const Norm& norm, const Linear& linear, Tensor x, Tensor h, Into into, Tensor out) {
  const CudaLinear& w = on_device(linear);
  CHECK(x.cols == w.in && x.rows == out.rows);
  if (x.rows <= kGemvRows) return few_rows(w, x, &norm, into, out);
  cuda::rms_norm(queue_, x, norm, h);
  gemm(queue_, w, h, into, out);
}

void CudaOps::embed(const Linear& table, const Step& step, Tensor out) {
  cuda::embed(queue_, on_device(table), step.ids, out);
}

void CudaOps::normalize_pixels(Tensor bytes, const PixelScale& scale, Tensor out) {
  cuda::normalize_pixels(queue_, bytes, scale, out);
}

void CudaOps::linear(const Linear& w, Tensor x, Tensor out) {
  multiply(w, x, Into::kStore, out);
}

void CudaOps::rms_norm(Tensor x, const Norm& norm, Tensor out) {
  cuda::rms_norm(queue_, x, norm, out);
}

void CudaOps::layer_norm(Tensor x, const Norm& norm, Tensor out) {
  cuda::layer_norm(queue_, x, norm, out);
}

void CudaOps::rope_angles(Tensor positions, const RopeTable& table, Tensor cos_sin) {
  cuda::rope_angles(queue_, positions, table, cos_sin);
}

void CudaOps::rope(Tensor x, Tensor cos_sin, int head_dim) {
  cuda::rope(queue_, x, cos_sin, head_dim);
}

void CudaOps::append_kv(Tensor k, Tensor v, const Step& step, const AttentionShape& shape, KvLayer cache) {
  cuda::append_kv(queue_, k, v, step, shape, cache);
}

void CudaOps::attend_cache(Tensor q, const Step& step, KvLayer cache, const AttentionShape& shape, Tensor out) {
  if (q.rows <= kGemvRows && attends_in_bulk(queue_, shape)) {
    attend_bulk(queue_, q, nullptr, step, cache, shape, scratch_.decode, out);
  } else if (q.rows <= kGemvRows) {
    attend_decode(queue_, q, step, cache, shape, scratch_.decode, out);
  } else {
    attend_pages(queue_, q, step, cache, shape, out);
  }
}

void CudaOps::attend_spans(Tensor q, Tensor k, Tensor v, Spans spans, const AttentionShape& shape, Tensor out) {
  for (int64_t s = 0; s < spans.count; ++s) {
    const int64_t first = spans.bounds[s], rows = spans.bounds[s + 1] - first;
    attend_span(queue_, q.slice_rows(first, rows), k.slice_rows(first, rows), v.slice_rows(first, rows), shape,
                out.slice_rows(first, rows));
  }
}

void CudaOps::silu_mul(Tensor x, Tensor out) {
  cuda::silu_mul(queue_, x, out);
}

void CudaOps::gelu(Tensor x, Gelu kind) {
  cuda::gelu(queue_, x, kind);
}

void CudaOps::add(Tensor x, Tensor inout) {
  cuda::add(queue_, x, inout);
}

void CudaOps::add_rows(Tensor x, Tensor index, Tensor inout) {
  cuda::add_rows(queue_, x, index, inout);
}

void CudaOps::put_rows(Tensor x, Tensor index, Tensor inout) {
  cuda::put_rows(queue_, x, index, inout);
}

void CudaOps::gather_rows(Tensor x, Tensor index, Tensor out) {
  cuda::gather_rows(queue_, x, index, out);
}

void CudaOps::add_positions(Tensor table, Tensor taps, Tensor weights, Tensor inout) {
  cuda::add_positions(queue_, table, taps, weights, inout);
}

void CudaOps::sample(Tensor logits, const Step& step) {
  CHECK(logits.dtype == DType::kF32);
  cuda::sample(queue_, logits, step.sampled, scratch_.sample);
}

void CudaOps::advance(const Step& step) {
  cuda::advance(queue_, step);
}

void CudaOps::route(Tensor logits, bool renormalize, Tensor ids, Tensor weights) {
  cuda::route(queue_, logits, renormalize, ids, weights);
}

void CudaOps::experts(const Linear& gate_up, const Linear& down, Tensor x, Tensor ids, Tensor weights, Tensor scratch,
                      Tensor inout) {
  cuda::experts(queue_, on_device(gate_up), on_device(down), x, ids, weights, scratch, inout);
}

void CudaOps::linear_add(const Linear& w, Tensor x, Tensor, Tensor inout) {
  multiply(w, x, Into::kAdd, inout);
}

void CudaOps::norm_linear(const Norm& norm, const Linear& w, Tensor x, Tensor scratch, Tensor out) {
  norm_multiply(norm, w, x, scratch, Into::kStore, out);
}

void CudaOps::norm_gate_up(const Norm& norm, const Linear& w, Tensor x, Tensor h, Tensor scratch, Tensor out) {
  if (on_device(w).order == CudaLinear::Order::kPairs) return norm_multiply(norm, w, x, h, Into::kSiluPairs, out);
  Ops::norm_gate_up(norm, w, x, h, scratch, out);
}

void CudaOps::linear_gelu(const Linear& w, Tensor x, Gelu kind, Tensor out) {
  multiply(w, x, kind == Gelu::kTanh ? Into::kGeluTanh : Into::kGeluErf, out);
}

void CudaOps::norm_rope_attend(Tensor qkv, const HeadNorms& norms, const Step& step, KvLayer cache,
                               const AttentionShape& shape, Tensor out) {
  if (qkv.rows == 1 && attends_in_bulk(queue_, shape)) {
    return attend_bulk(queue_, qkv, &norms, step, cache, shape, scratch_.decode, out);
  }
  norm_rope_append(queue_, qkv, norms, step, shape, cache);
  attend_cache(qkv.slice_cols(0, int64_t{shape.heads} * shape.head_dim), step, cache, shape, out);
}

}  // namespace vireo::cuda
