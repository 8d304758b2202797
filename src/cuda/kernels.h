// The kernels as host functions: one per op or family, each a launch on a queue. Shapes and types are checked by CudaOps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/cuda_linear.h"
#include "cuda/launch.h"
#include "ops/step.h"
#include "ops/weights.h"

namespace vireo::cuda {

// The PTX version (90 for compute_90) of the code that the driver took for the current device; 0: there is none for it.
int kernels_version();

// What becomes of a product.
enum class Into { kStore, kAdd, kGeluTanh, kGeluErf, kSiluPairs };

// Rows of products of one to kGemvRows rows have the same bits whatever their number.
inline constexpr int kGemvRows = 8;

// How a GEMV is cut: found by timing, per shape.
struct GemvShape {
  // Steps of 64 inputs in flight per warp, 4 or 8; of gemv_bulk, stages of 16 KB in flight per block, 2 to 8. Of matrices in a tier
  // about as many bytes.
  int depth = 4;
  int warps = 16;  // of a block: 2 to 16; gemv_bulk always has 8 and one that copies
  int blocks_per_processor = 1;
};

// x [1..8, in] bf16, or float32 rows that are normalised on the way in when `norm` is set; out as `into` says. gemv_bulk needs the
// bulk copies of compute capability 9.0, gemv_copies nothing.
void gemv_copies(const Queue& queue, const CudaLinear& w, Tensor x, const Norm* norm, Into into, Tensor out,
                 GemvShape shape);
void gemv_bulk(const Queue& queue, const CudaLinear& w, Tensor x, const Norm* norm, Into into, Tensor out,
               GemvShape shape);
// The same with w.coded.
void coded_gemv_copies(const Queue& queue, const CudaLinear& w, Tensor x, const Norm* norm, Into into, Tensor out,
                       GemvShape shape);
void coded_gemv_bulk(const Queue& queue, const CudaLinear& w, Tensor x, const Norm* norm, Into into, Tensor out,
                     GemvShape shape);
// The same for any number of bf16 rows, on the tensor cores.
void gemm(const Queue& queue, const CudaLinear& w, Tensor x, Into into, Tensor out);
// Outputs from `first` on, a multiple of 16, of a matrix that has codes alone, in the order of its rows: to the weights of `to`.
void restore_weights(const Queue& queue, const CudaLinear& from, int64_t first, const CudaLinear& to);
inline constexpr int64_t kRestoredWeightBytes = 64 << 20;  // at a time

// Tokens of one part of a decode row's attention.
inline constexpr int kSplitTokens = 128;
// Scratch of attend_decode: `partials` float32 of attend_decode_partials() values, `counters` zeroed once, one per row and KV head.
struct DecodeScratch {
  float* partials = nullptr;
  int32_t* counters = nullptr;
};
// Scratch of a chain. Of two sets of slots, all empty (0xff) at first, each launch uses one; the rest is zeroed once.
inline constexpr int kMostLinks = 330;  // of a launch
inline constexpr int kChainCounters = 4 + 2 * kMostLinks + 2;
struct ChainScratch {
  // kChainCounters: launches so far, blocks that left this one, slots used of each set, what each link has sent, and 8 bytes for the best of
  // the logits.
  int32_t* counters = nullptr;
  uint32_t* slots = nullptr;
  uint64_t* partials = nullptr;
  int64_t slot_count = 0, partial_count = 0;  // of a set
};
// Bytes of a token's codes of one head.
int64_t kv_code_bytes(const AttentionShape& shape);
// Where a dim of a token of a page lies among them.
int64_t kv_code_place(int64_t dim, int64_t token, const AttentionShape& shape);
int64_t attend_decode_partials(int64_t slots, const AttentionShape& shape);
// Up to 8 rows; KV pages are [page][kv_head][64][head_dim] bf16, or codes with scales as kv_codes.cuh has them.
void attend_decode(const Queue& queue, Tensor q, const Step& step, KvLayer cache, const AttentionShape& shape,
                   DecodeScratch scratch, Tensor out);
// Any number of rows, on the tensor cores.
void attend_pages(const Queue& queue, Tensor q, const Step& step, KvLayer cache, const AttentionShape& shape,
                  Tensor out);
// A span where the device has products of warpgroups and the shape allows.
bool attends_wide(const Queue& queue, const AttentionShape& shape, Tensor q, Tensor k, Tensor v);
void attend_wide(const Queue& queue, Tensor q, Tensor k, Tensor v, const AttentionShape& shape, Tensor out);
// As attend_pages.
bool attends_pages_wide(const Queue& queue, const AttentionShape& shape, Tensor q);
void attend_pages_wide(const Queue& queue, Tensor q, const Step& step, KvLayer cache, const AttentionShape& shape,
                       Tensor out);
// One span [first, first + rows) of keys and queries.
void attend_span(const Queue& queue, Tensor q, Tensor k, Tensor v, const AttentionShape& shape, Tensor out);
void norm_rope_append(const Queue& queue, Tensor qkv, const HeadNorms& norms, const Step& step,
                      const AttentionShape& shape, KvLayer cache);
// The same as attend_decode, and with `norms` norm, rotation and append of a single row before, for shapes that attends_in_bulk.
bool attends_in_bulk(const Queue& queue, const AttentionShape& shape);
void attend_bulk(const Queue& queue, Tensor qkv, const HeadNorms* norms, const Step& step, KvLayer cache,
                 const AttentionShape& shape, DecodeScratch scratch, Tensor out);
// Pages of codes that the step's rows see, as bf16 in the same pages of `to`.
void restore_pages(const Queue& queue, const Step& step, const AttentionShape& shape, KvLayer cache, KvLayer to);
void append_kv(const Queue& queue, Tensor k, Tensor v, const Step& step, const AttentionShape& shape, KvLayer cache);

void embed(const Queue& queue, const CudaLinear& table, Tensor ids, Tensor out);
void begin_rows(const Queue& queue, const CudaLinear& table, const Step& step, const RopeTable& rope, Tensor x,
                Tensor cos_sin);
void normalize_pixels(const Queue& queue, Tensor bytes, const PixelScale& scale, Tensor out);
void rms_norm(const Queue& queue, Tensor x, const Norm& norm, Tensor out);
void layer_norm(const Queue& queue, Tensor x, const Norm& norm, Tensor out);
void rope_angles(const Queue& queue, Tensor positions, const RopeTable& table, Tensor cos_sin);
void rope(const Queue& queue, Tensor x, Tensor cos_sin, int head_dim);
void silu_mul(const Queue& queue, Tensor x, Tensor out);
// out[j] = silu(x[2 j]) * x[2 j + 1]
void silu_pairs(const Queue& queue, Tensor x, Tensor out);
void gelu(const Queue& queue, Tensor x, Gelu kind);
void add(const Queue& queue, Tensor x, Tensor inout);
void add_rows(const Queue& queue, Tensor x, Tensor index, Tensor inout);
void put_rows(const Queue& queue, Tensor x, Tensor index, Tensor inout);
void gather_rows(const Queue& queue, Tensor x, Tensor index, Tensor out);
void add_positions(const Queue& queue, Tensor table, Tensor taps, Tensor weights, Tensor inout);

// Scratch of sample: per row `kSampleParts` candidates and a zeroed counter, and one more for all rows.
inline constexpr int kSampleParts = 64;
struct SampleScratch {
  float* values = nullptr;
  int32_t* ids = nullptr;
  int32_t* counters = nullptr;
};
void sample(const Queue& queue, Tensor logits, Tensor sampled, SampleScratch scratch);
void advance(const Queue& queue, const Step& step);
// A ring in host memory where steps leave their ids: `count` slots of kGemvRows words, each the id below and the number of the step, from 1,
// above. `done` counts steps.
struct IdRing {
  uint64_t* words = nullptr;
  int32_t count = 0;
  int32_t* done = nullptr;
};
// sample, advance, and the ids to the ring, for up to kGemvRows rows of a decode step.
void finish_step(const Queue& queue, Tensor logits, const Step& step, SampleScratch scratch, IdRing ring);

// How the ids of a sequence are drawn.
struct DrawRule {
  double presence_penalty = 0, frequency_penalty = 0;
  double top_p = 1, min_p = 0;
  uint64_t seed = 0, index = 0;  // of the next token
  float temperature = 0, repetition_penalty = 1;
  int32_t top_k = 0, vocabulary = 0;
  bool penalises = false;
};
// Device memory of draw: by sequence, and below by row of a step.
inline constexpr int kDrawBins = 2048;
struct DrawScratch {
  DrawRule* rules = nullptr;
  uint32_t* counts = nullptr;       // [vocab] how often each id was chosen, and kInPrompt
  float* adjusted = nullptr;        // [pitch] logits after the penalties
  uint64_t* bin_weights = nullptr;  // [kDrawBins] zero between steps, like the counts
  uint32_t* bin_counts = nullptr;
  int64_t vocab = 0, pitch = 0;  // pitch: a multiple of 4
};
inline constexpr uint32_t kInPrompt = 1u << 31;
// As sample or, with a ring, finish_step, for rows whose sequences have rules. Changes the rules' indices and counts.
void draw(const Queue& queue, Tensor logits, const Step& step, SampleScratch scratch, const DrawScratch& drawing,
          IdRing ring);

void route(const Queue& queue, Tensor logits, bool renormalize, Tensor ids, Tensor weights);
// The most inputs of a matrix in a tier: kernels keep a row and some chunks of weights in a block's shared memory.
int64_t most_coded_inputs(const Queue& queue);
// decodes: weights in a tier are read in it, as always where there are codes alone.
void experts(const Queue& queue, const CudaLinear& gate_up, const CudaLinear& down, bool decodes, Tensor x, Tensor ids,
             Tensor weights, Tensor scratch, Tensor inout);

// Turns a [rows, cols] matrix: to[c * to_stride + r] = from[r * from_stride + c].
void transpose(const Queue& queue, const bf16* from, int64_t from_stride, int64_t rows, int64_t cols, bf16* to,
               int64_t to_stride);

// Reads `bytes` (a multiple of 16) once; the sums only make sure that it did.
void read_all(const Queue& queue, const void* data, int64_t bytes, uint32_t* sums);

}  // namespace vireo::cuda
