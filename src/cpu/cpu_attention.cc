// Attention on the CPU: blocks of query rows against panels of 64 keys and values, with a running softmax; no score matrix is
// larger than a block. The same blocks serve decode, prefill and the vision tower, so a row's result does not depend on them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/cpu_ops.h"

namespace vireo::cpu {
namespace {

constexpr int64_t kKeys = kPageTokens;
constexpr int64_t kBlockRows = 64;  // query rows (of all heads of a group) of one item

int32_t index_at(Tensor t, int64_t r) {
  return t.row<int32_t>(r)[0];
}

template <typename T>
T* thread_memory(int64_t size) {
  thread_local std::vector<T> memory;
  return grown(memory, size);
}

}  // namespace

// Query rows in input form, their running softmax, and where their results go.
struct CpuOps::QueryBlock {
  int64_t rows = 0;
  int64_t head_dim = 0;
  int64_t stride = 0;  // of inputs, values
  float scale = 0;
  const char* inputs = nullptr;
  char* weights = nullptr;  // [rows, 64] in input form
  float* scores = nullptr;  // [rows, 64]
  float* sums = nullptr;    // [rows, panels of head_dim * 16]
  float* acc[kBlockRows];
  float largest[kBlockRows];
  float total[kBlockRows];
  int visible[kBlockRows];  // keys of the current panels that each row sees

  void begin(int64_t row, float* result) {
    acc[row] = result;
    largest[row] = -INFINITY;
    total[row] = 0;
    std::fill_n(result, head_dim, 0.0f);
  }
  void end() const {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t d = 0; d < head_dim; ++d) acc[r][d] /= total[r];
    }
  }
};

namespace {

// Weights in input form times the scales of their tokens.
void scale_weights(char* weights, int bytes, const bf16* scales) {
  for (int64_t j = 0; j < kKeys; ++j) {
    if (bytes == 4) {
      reinterpret_cast<float*>(weights)[j] *= to_float(scales[j]);
    } else {
      bf16& w = reinterpret_cast<bf16*>(weights)[j];
      w = to_bf16(to_float(w) * to_float(scales[j]));
    }
  }
}

}  // namespace

void CpuOps::attend_panels(QueryBlock& b, const KvHead& head) const {
  const int64_t value_panels = panels_of(b.head_dim), width = value_panels * kPanelOuts;
  k_.product(b.inputs, b.stride, b.rows, head.keys, kGroupPanels, pairs_of(b.head_dim), b.scores, kKeys);
  float keep[kBlockRows];
  for (int64_t r = 0; r < b.rows; ++r) {
    char* weights = b.weights + r * kKeys * k_.input_bytes;
    if (b.visible[r] > 0) {
      for (int64_t j = 0; head.key_scales && j < kKeys; ++j) b.scores[r * kKeys + j] *= to_float(head.key_scales[j]);
      keep[r] = k_.soften(b.scores + r * kKeys, b.visible[r], b.scale, &b.largest[r], &b.total[r], weights);
      if (head.value_scales) scale_weights(weights, k_.input_bytes, head.value_scales);
    } else {
      std::memset(weights, 0, static_cast<size_t>(kKeys * k_.input_bytes));
      keep[r] = 1;
    }
  }
  k_.product(b.weights, kKeys, b.rows, head.values, value_panels, pairs_of(kKeys), b.sums, width);
  for (int64_t r = 0; r < b.rows; ++r) k_.blend(b.sums + r * width, keep[r], b.head_dim, b.acc[r]);
}

namespace {

// Scratch of one block in this thread's memory.
template <typename Block>
void place_scratch(Block& b, int input_bytes) {
  b.stride = (b.head_dim + 31) / 32 * 32 + 32;
  const int64_t width = panels_of(b.head_dim) * kPanelOuts;
  float* floats = thread_memory<float>(kBlockRows * (kKeys + width));
  b.scores = floats;
  b.sums = floats + kBlockRows * kKeys;
  char* bytes = thread_memory<char>(kBlockRows * (kKeys + b.stride) * input_bytes);
  b.weights = bytes;
  b.inputs = bytes + kBlockRows * kKeys * input_bytes;
}

}  // namespace

// Codes become bf16, exactly, in this thread's memory.
CpuOps::KvHead CpuOps::head_of(KvLayer cache, const AttentionShape& shape, int64_t page, int64_t head) const {
  const KvPage sizes(shape.head_dim);
  const int64_t key = head * sizes.key_head, value = head * sizes.value_head;
  if (!cache.k_scales.data) return {cache.k.row<bf16>(page) + key, cache.v.row<bf16>(page) + value};
  constexpr int64_t kAtOnce = 64;
  bf16* panels = thread_memory<bf16>(sizes.key_head + sizes.value_head);
  const auto expand = [&](const int8_t* codes, int64_t count, bf16* to) {
    float floats[kAtOnce];
    for (int64_t at = 0; at < count; at += kAtOnce) {
      const int64_t n = std::min(kAtOnce, count - at);
      for (int64_t i = 0; i < n; ++i) floats[i] = static_cast<float>(codes[at + i]);
      k_.to_bf16(floats, n, to + at);
    }
  };
  expand(cache.k.row<int8_t>(page) + key, sizes.key_head, panels);
  expand(cache.v.row<int8_t>(page) + value, sizes.value_head, panels + sizes.key_head);
  return {panels, panels + sizes.key_head, cache.k_scales.row<bf16>(page) + head * kKeys,
          cache.v_scales.row<bf16>(page) + head * kKeys};
}

void CpuOps::attend_block(const Step& step, KvLayer cache, const AttentionShape& shape, Tensor q, Tensor out,
                          int64_t first, int64_t rows, int64_t kv_head) const {
  const int64_t hd = shape.head_dim, group = shape.heads / shape.kv_heads;
  QueryBlock b;
  b.rows = rows * group;
  b.head_dim = hd;
  b.scale = shape.scale;
  place_scratch(b, k_.input_bytes);
  int64_t longest = 0;
  for (int64_t i = 0; i < b.rows; ++i) {
    const int64_t row = first + i / group, column = (kv_head * group + i % group) * hd;
    k_.to_input(q.row<float>(row) + column, hd, const_cast<char*>(b.inputs) + i * b.stride * k_.input_bytes);
    b.begin(i, out.row<float>(row) + column);
    longest = std::max<int64_t>(longest, index_at(step.lengths, row));
  }
  const int32_t* table = step.page_table.row<int32_t>(index_at(step.sequences, first));
  for (int64_t begin = 0; begin < longest; begin += kKeys) {
    for (int64_t i = 0; i < b.rows; ++i) {
      const int64_t length = index_at(step.lengths, first + i / group);
      b.visible[i] = static_cast<int>(std::clamp<int64_t>(length - begin, 0, kKeys));
    }
    attend_panels(b, head_of(cache, shape, table[begin / kKeys], kv_head));
  }
  b.end();
}

void CpuOps::attend_cache(Tensor q, const Step& step, KvLayer cache, const AttentionShape& shape, Tensor out) {
  const int64_t group = shape.heads / shape.kv_heads;
  CHECK(group <= kBlockRows);
  // Rows of one sequence share its keys; rows of several are taken one by one.
  bool one_sequence = true;
  for (int64_t r = 1; r < q.rows; ++r) one_sequence &= index_at(step.sequences, r) == index_at(step.sequences, 0);
  const int64_t per_block = one_sequence ? kBlockRows / group : 1, blocks = (q.rows + per_block - 1) / per_block;
  pool_.run(blocks * shape.kv_heads, [&](int64_t item, int) {
    // The longest rows first: they are the last blocks.
    const int64_t first = (blocks - 1 - item / shape.kv_heads) * per_block;
    attend_block(step, cache, shape, q, out, first, std::min(per_block, q.rows - first), item % shape.kv_heads);
  });
}

namespace {

// Place of element d of a head in its page's panels.
int64_t key_place(int64_t token, int64_t d, int64_t hd) {
  return token / kPanelOuts * panel_size(hd) + d / 2 * 2 * kPanelOuts + token % kPanelOuts * 2 + d % 2;
}

int64_t value_place(int64_t token, int64_t d) {
  return d / kPanelOuts * panel_size(kKeys) + token / 2 * 2 * kPanelOuts + d % kPanelOuts * 2 + token % 2;
}

}  // namespace

void CpuOps::append_row(const float* k, const float* v, int64_t slot, const AttentionShape& shape,
                        KvLayer cache) const {
  if (slot < 0) return;
  const int64_t hd = shape.head_dim, token = slot % kKeys;
  const KvPage page(hd);
  const int64_t p = slot / kKeys;
  if (cache.k_scales.data) {
    int8_t* codes = thread_memory<int8_t>(hd);
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      int8_t* key = cache.k.row<int8_t>(p) + h * page.key_head;
      int8_t* value = cache.v.row<int8_t>(p) + h * page.value_head;
      cache.k_scales.row<bf16>(p)[h * kKeys + token] = quantize_kv(k + h * hd, hd, codes);
      for (int64_t d = 0; d < hd; ++d) key[key_place(token, d, hd)] = codes[d];
      cache.v_scales.row<bf16>(p)[h * kKeys + token] = quantize_kv(v + h * hd, hd, codes);
      for (int64_t d = 0; d < hd; ++d) value[value_place(token, d)] = codes[d];
    }
    return;
  }
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    bf16* key = cache.k.row<bf16>(p) + h * page.key_head;
    bf16* value = cache.v.row<bf16>(p) + h * page.value_head;
    for (int64_t d = 0; d < hd; ++d) {
      key[key_place(token, d, hd)] = to_bf16(k[h * hd + d]);
      value[value_place(token, d)] = to_bf16(v[h * hd + d]);
    }
  }
}

void CpuOps::read_row(KvLayer cache, const AttentionShape& shape, int64_t slot, float* k, float* v) {
  const int64_t hd = shape.head_dim, token = slot % kKeys;
  const KvPage page(hd);
  const int64_t p = slot / kKeys;
  const auto element = [&](Tensor t, Tensor scales, int64_t h, int64_t at) {
    if (!scales.data) return to_float(t.row<bf16>(p)[at]);
    return static_cast<float>(t.row<int8_t>(p)[at]) * to_float(scales.row<bf16>(p)[h * kKeys + token]);
  };
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    for (int64_t d = 0; d < hd; ++d) {
      k[h * hd + d] = element(cache.k, cache.k_scales, h, h * page.key_head + key_place(token, d, hd));
      v[h * hd + d] = element(cache.v, cache.v_scales, h, h * page.value_head + value_place(token, d));
    }
  }
}

void CpuOps::append_kv(Tensor k, Tensor v, const Step& step, const AttentionShape& shape, KvLayer cache) {
  for_rows(k.rows, 4 * k.cols,
           [&](int64_t r) { append_row(k.row<float>(r), v.row<float>(r), index_at(step.slots, r), shape, cache); });
}

void CpuOps::norm_rope_attend(Tensor qkv, const HeadNorms& norms, const Step& step, KvLayer cache,
                              const AttentionShape& shape, Tensor out) {
  const int64_t hd = shape.head_dim;
  for_rows(qkv.rows, 4 * qkv.cols, [&](int64_t r) {
    float* row = qkv.row<float>(r);
    for (int64_t h = 0; h < shape.heads + shape.kv_heads; ++h) {
      const Norm& norm = h < shape.heads ? norms.q : norms.k;
      k_.rms_norm(row + h * hd, norm.weight.row<float>(0), hd, norm.eps, row + h * hd);
      k_.rope(row + h * hd, norms.cos_sin.row<float>(r), hd / 2);
    }
    const float* k = row + shape.heads * hd;
    append_row(k, k + shape.kv_heads * hd, index_at(step.slots, r), shape, cache);
  });
  attend_cache(qkv.slice_cols(0, shape.heads * hd), step, cache, shape, out);
}

// Up to 64 tokens of one head as panels, zeros after them.
void CpuOps::pack_span(Tensor k, Tensor v, int64_t first, int64_t tokens, const AttentionShape& shape, bf16* keys,
                       bf16* values) const {
  const int64_t hd = shape.head_dim;
  bf16* rows = thread_memory<bf16>(kKeys * hd);
  for (int64_t j = 0; j < tokens; ++j) k_.to_bf16(k.row<float>(first + j), hd, rows + j * hd);
  std::fill_n(rows + tokens * hd, (kKeys - tokens) * hd, bf16{});
  for (int64_t p = 0; p < kGroupPanels; ++p) {
    k_.pack_panel(rows + p * kPanelOuts * hd, hd, kPanelOuts, hd, keys + p * panel_size(hd));
  }
  for (int64_t j = 0; j < tokens; ++j) k_.to_bf16(v.row<float>(first + j), hd, rows + j * hd);
  std::fill_n(rows + tokens * hd, (kKeys - tokens) * hd, bf16{});
  for (int64_t d = 0; d < panels_of(hd) * kPanelOuts; ++d) {
    bf16* to = values + d / kPanelOuts * panel_size(kKeys) + d % kPanelOuts * 2;
    for (int64_t j = 0; j < kKeys; ++j) to[j / 2 * 2 * kPanelOuts + j % 2] = d < hd ? rows[j * hd + d] : bf16{};
  }
}

void CpuOps::attend_spans(Tensor q, Tensor k, Tensor v, Spans spans, const AttentionShape& shape, Tensor out) {
  const int64_t hd = shape.head_dim;
  const KvPage page(hd);
  for (int64_t s = 0; s < spans.count; ++s) {
    const int64_t first = spans.bounds[s], n = spans.bounds[s + 1] - first;
    const int64_t key_blocks = (n + kKeys - 1) / kKeys, row_blocks = (n + kBlockRows - 1) / kBlockRows;
    const int64_t head_size = key_blocks * (page.key_head + page.value_head);
    bf16* memory = grown(span_memory_, shape.heads * head_size);
    const auto keys_of = [&](int64_t h, int64_t b) {
      return memory + h * head_size + b * (page.key_head + page.value_head);
    };
    pool_.run(shape.heads * key_blocks, [&](int64_t item, int) {
      const int64_t h = item / key_blocks, b = item % key_blocks;
      bf16* keys = keys_of(h, b);
      pack_span(k.slice_cols(h * hd, hd), v.slice_cols(h * hd, hd), first + b * kKeys, std::min(kKeys, n - b * kKeys),
                shape, keys, keys + page.key_head);
    });
    pool_.run(shape.heads * row_blocks, [&](int64_t item, int) {
      const int64_t h = item / row_blocks, row = first + item % row_blocks * kBlockRows;
      QueryBlock b;
      b.rows = std::min(kBlockRows, first + n - row);
      b.head_dim = hd;
      b.scale = shape.scale;
      place_scratch(b, k_.input_bytes);
      for (int64_t i = 0; i < b.rows; ++i) {
        k_.to_input(q.row<float>(row + i) + h * hd, hd, const_cast<char*>(b.inputs) + i * b.stride * k_.input_bytes);
        b.begin(i, out.row<float>(row + i) + h * hd);
      }
      for (int64_t j = 0; j < key_blocks; ++j) {
        std::fill_n(b.visible, b.rows, static_cast<int>(std::min(kKeys, n - j * kKeys)));
        attend_panels(b, {keys_of(h, j), keys_of(h, j) + page.key_head});
      }
      b.end();
    });
  }
}

}  // namespace vireo::cpu
