// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_ops.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "cuda/tier_layout.h"

namespace vireo::cuda {
namespace {

const CudaLinear& on_device(const Linear& w) {
  return static_cast<const CudaLinear&>(w);
}

}  // namespace

GemvShape CudaOps::shape_of(std::pair<int64_t, int64_t> shape) const {
  const auto found = shapes_.find(shape);
  if (found != shapes_.end()) return found->second;
  // As timed over whole steps on one H200 (bench/ops/cuda_step_bench.cc).
  if (queue_.bulk_copies)
    return {.depth = shape.first > 65536 ? 2 : shape.first > 8192 ? 5 : 4, .warps = 8, .blocks_per_processor = 2};
  return {.depth = 8, .warps = 8, .blocks_per_processor = 2};
}

void CudaOps::begin_chain() {
  if (queue_.bulk_copies && scratch_.chain.counters) chain_ = std::make_unique<Chain>(queue_, scratch_.chain);
}

void CudaOps::finish_chain() {
  now();
  chain_.reset();
}

void CudaOps::few_rows(const CudaLinear& w, Tensor x, const Norm* norm, Into into, Tensor out) {
  const bool coded = reads_codes(w);
  if (!queue_.bulk_copies) {
    return (coded ? coded_gemv_copies : gemv_copies)(now(), w, x, norm, into, out, shape_of({w.out, w.in}));
  }
  const bool normed = norm != nullptr;
  const auto alone = [=, this, &w, copy = normed ? *norm : Norm{}] {
    const auto gemv = coded ? coded_gemv_bulk : gemv_bulk;
    gemv(queue_, w, x, normed ? &copy : nullptr, into, out, shape_of({w.out, w.in}));
  };
  const Tier tier = coded ? w.coded.tier : Tier::kBf16;
  if (chain_ && chain_->product(w, tier, x, norm, into, out, alone)) return;
  now();
  alone();
}

void CudaOps::for_bf16_parts(const CudaLinear& w,
                             const std::function<void(const Queue&, const CudaLinear&, int64_t)>& multiply) {
  if (w.weights) return multiply(now(), w, 0);
  CHECK(scratch_.restored_weights && w.groups == 1 && !w.bias);
  const int64_t most = kRestoredWeightBytes / (w.stride * 2) / kChunkOuts * kChunkOuts;
  CHECK(most > 0);
  // Products read weights ahead of time, which here are not there yet.
  Queue in_turn = now();
  in_turn.early_start = false;
  for (int64_t first = 0; first < w.out; first += most) {
    CudaLinear part(w.in, std::min(most, w.out - first), 1, w.order);
    part.weights = scratch_.restored_weights;
    restore_weights(queue_, w, first, part);
    multiply(in_turn, part, first);
  }
}

void CudaOps::many_rows(const CudaLinear& w, Tensor x, Into into, Tensor out) {
  // The library knows one of the two kinds of GELU.
  const Into in_library = into == Into::kGeluErf ? Into::kStore : into;
  const bool plain = w.order == CudaLinear::Order::kPlain;
  const int64_t of_output = into == Into::kSiluPairs ? 2 : 1;
  // Of a part of pairs, stored apart, neither half would lie where it belongs.
  CHECK(w.weights || plain || into == Into::kSiluPairs || w.out * w.stride * 2 <= kRestoredWeightBytes);
  for_bf16_parts(w, [&](const Queue& queue, const CudaLinear& part, int64_t first) {
    const Tensor y = out.slice_cols(first / of_output, part.out / of_output);
    if (!vendor_ || !plain || !vendor_->multiply(queue, part, x, in_library, y)) return gemm(queue, part, x, into, y);
    if (into == Into::kGeluErf) cuda::gelu(queue, y, Gelu::kErf);
  });
}

void CudaOps::multiply(const Linear& linear, Tensor x, Into into, Tensor out) {
  const CudaLinear& w = on_device(linear);
  CHECK(x.cols == w.in && x.rows == out.rows);
  if (is_few(w, x)) {
    few_rows(w, x, nullptr, into, out);
  } else {
    many_rows(w, x, into, out);
  }
}

void CudaOps::norm_multiply(const Norm& norm, const Linear& linear, Tensor x, Tensor h, Into into, Tensor out) {
  const CudaLinear& w = on_device(linear);
  CHECK(x.cols == w.in && x.rows == out.rows);
  if (is_few(w, x)) return few_rows(w, x, &norm, into, out);
  cuda::rms_norm(now(), x, norm, h);
  many_rows(w, h, into, out);
}

void CudaOps::begin_part(const char* name, int64_t index) {
  if (index < 0) {
    nvtxRangePushA(name);
    return;
  }
  char text[64];
  std::snprintf(text, sizeof(text), "%s %lld", name, static_cast<long long>(index));
  nvtxRangePushA(text);
}

void CudaOps::end_part() {
  nvtxRangePop();
}

void CudaOps::embed(const Linear& table, const Step& step, Tensor out) {
  cuda::embed(now(), on_device(table), step.ids, out);
}

void CudaOps::normalize_pixels(Tensor bytes, const PixelScale& scale, Tensor out) {
  cuda::normalize_pixels(now(), bytes, scale, out);
}

void CudaOps::linear(const Linear& w, Tensor x, Tensor out) {
  multiply(w, x, Into::kStore, out);
}

void CudaOps::rms_norm(Tensor x, const Norm& norm, Tensor out) {
  cuda::rms_norm(now(), x, norm, out);
}

void CudaOps::layer_norm(Tensor x, const Norm& norm, Tensor out) {
  cuda::layer_norm(now(), x, norm, out);
}

void CudaOps::rope_angles(Tensor positions, const RopeTable& table, Tensor cos_sin) {
  cuda::rope_angles(now(), positions, table, cos_sin);
}

void CudaOps::rope(Tensor x, Tensor cos_sin, int head_dim) {
  cuda::rope(now(), x, cos_sin, head_dim);
}

void CudaOps::append_kv(Tensor k, Tensor v, const Step& step, const AttentionShape& shape, KvLayer cache) {
  cuda::append_kv(now(), k, v, step, shape, cache);
}

void CudaOps::attend_cache(Tensor q, const Step& step, KvLayer cache, const AttentionShape& shape, Tensor out) {
  if (q.rows <= kGemvRows && attends_in_bulk(queue_, shape)) {
    attend_bulk(now(), q, nullptr, step, cache, shape, scratch_.decode, out);
  } else if (q.rows <= kGemvRows) {
    attend_decode(now(), q, step, cache, shape, scratch_.decode, out);
  } else if (cache.k_scales.data) {
    restore_pages(now(), step, shape, cache, scratch_.restored);
    attend_cache(q, step, scratch_.restored, shape, out);
  } else if (attends_pages_wide(queue_, shape, q)) {
    attend_pages_wide(now(), q, step, cache, shape, out);
  } else {
    attend_pages(now(), q, step, cache, shape, out);
  }
}

void CudaOps::attend_spans(Tensor q, Tensor k, Tensor v, Spans spans, const AttentionShape& shape, Tensor out) {
  for (int64_t s = 0; s < spans.count; ++s) {
    const int64_t first = spans.bounds[s], rows = spans.bounds[s + 1] - first;
    const Tensor span[] = {q.slice_rows(first, rows), k.slice_rows(first, rows), v.slice_rows(first, rows),
                           out.slice_rows(first, rows)};
    const auto attend = attends_wide(queue_, shape, span[0], span[1], span[2]) ? attend_wide : attend_span;
    attend(now(), span[0], span[1], span[2], shape, span[3]);
  }
}

void CudaOps::silu_mul(Tensor x, Tensor out) {
  cuda::silu_mul(now(), x, out);
}

void CudaOps::gelu(Tensor x, Gelu kind) {
  cuda::gelu(now(), x, kind);
}

void CudaOps::add(Tensor x, Tensor inout) {
  cuda::add(now(), x, inout);
}

void CudaOps::add_rows(Tensor x, Tensor index, Tensor inout) {
  cuda::add_rows(now(), x, index, inout);
}

void CudaOps::put_rows(Tensor x, Tensor index, Tensor inout) {
  cuda::put_rows(now(), x, index, inout);
}

void CudaOps::gather_rows(Tensor x, Tensor index, Tensor out) {
  cuda::gather_rows(now(), x, index, out);
}

void CudaOps::add_positions(Tensor table, Tensor taps, Tensor weights, Tensor inout) {
  cuda::add_positions(now(), table, taps, weights, inout);
}

void CudaOps::sample(Tensor logits, const Step& step) {
  CHECK(logits.dtype == DType::kF32);
  if (chain_ && chain_->choose(logits, step, scratch_.sample, {})) return;
  cuda::sample(now(), logits, step.sampled, scratch_.sample);
}

void CudaOps::advance(const Step& step) {
  cuda::advance(now(), step);
}

void CudaOps::finish_step(Tensor logits, const Step& step, IdRing ring) {
  if (chain_ && chain_->choose(logits, step, scratch_.sample, ring)) return;
  cuda::finish_step(now(), logits, step, scratch_.sample, ring);
}

void CudaOps::draw(Tensor logits, const Step& step, const DrawScratch& drawing, IdRing ring) {
  cuda::draw(now(), logits, step, scratch_.sample, drawing, ring);
}

void CudaOps::route(Tensor logits, bool renormalize, Tensor ids, Tensor weights) {
  cuda::route(now(), logits, renormalize, ids, weights);
}

void CudaOps::experts(const Linear& gate_up, const Linear& down, Tensor x, Tensor ids, Tensor weights, Tensor scratch,
                      Tensor inout) {
  cuda::experts(now(), on_device(gate_up), on_device(down), decodes_, x, ids, weights, scratch, inout);
}

void CudaOps::linear_add(const Linear& w, Tensor x, Tensor, Tensor inout) {
  multiply(w, x, Into::kAdd, inout);
}

void CudaOps::norm_linear(const Norm& norm, const Linear& w, Tensor x, Tensor scratch, Tensor out) {
  norm_multiply(norm, w, x, scratch, Into::kStore, out);
}

void CudaOps::norm_gate_up(const Norm& norm, const Linear& w, Tensor x, Tensor h, Tensor scratch, Tensor out) {
  if (on_device(w).order != CudaLinear::Order::kPairs) return Ops::norm_gate_up(norm, w, x, h, scratch, out);
  const bool in_fours = scratch.stride % 8 == 0 && out.stride % 4 == 0 && out.cols % 4 == 0;
  if (!vendor_ || !in_fours || is_few(on_device(w), x)) return norm_multiply(norm, w, x, h, Into::kSiluPairs, out);
  cuda::rms_norm(now(), x, norm, h);
  for_bf16_parts(on_device(w), [&](const Queue& queue, const CudaLinear& part, int64_t first) {
    const Tensor pairs = scratch.slice_cols(first, part.out), y = out.slice_cols(first / 2, part.out / 2);
    if (!vendor_->multiply(queue, part, h, Into::kStore, pairs)) return gemm(queue, part, h, Into::kSiluPairs, y);
    silu_pairs(queue, pairs, y);
  });
}

void CudaOps::linear_gelu(const Linear& w, Tensor x, Gelu kind, Tensor out) {
  multiply(w, x, kind == Gelu::kTanh ? Into::kGeluTanh : Into::kGeluErf, out);
}

void CudaOps::begin_rows(const Linear& table, const Step& step, const RopeTable& rope, Tensor x, Tensor cos_sin) {
  cuda::begin_rows(now(), on_device(table), step, rope, x, cos_sin);
}

void CudaOps::norm_rope_attend(Tensor qkv, const HeadNorms& norms, const Step& step, KvLayer cache,
                               const AttentionShape& shape, Tensor out) {
  if (qkv.rows == 1 && attends_in_bulk(queue_, shape)) {
    const auto alone = [=, this] { attend_bulk(queue_, qkv, &norms, step, cache, shape, scratch_.decode, out); };
    if (chain_ && chain_->attend(qkv, norms, step, cache, shape, out, alone)) return;
    now();
    return alone();
  }
  norm_rope_append(now(), qkv, norms, step, shape, cache);
  attend_cache(qkv.slice_cols(0, int64_t{shape.heads} * shape.head_dim), step, cache, shape, out);
}

}  // namespace vireo::cuda
