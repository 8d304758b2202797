// Products and attention of one row, one after the other in a single launch (compute capability 9.0). One block per multiprocessor does its
// share of every link and waits for the others in between. Its copying warps do not wait: weights, keys and values of the
// links to come are on their way while the others wait, compute or wait again, so that memory never rests.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chain.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/check.h"
#include "cuda/sm90/attend_bulk.cuh"
#include "cuda/sm90/gemv_bulk.cuh"
#include "cuda/sm90/mail.cuh"
#include "cuda/steps.cuh"

#pragma nv_diag_suppress 177  // declared and not used: in code for devices before 9.0

namespace vireo::cuda {
namespace {

// Where what a link writes lies among the launch's slots, or -1: it is read from memory, or nobody in the launch reads it.
using Place = int32_t;

// One row times weights. As GemvArguments, but small: a launch's parameters are few.
struct ProductLink {
  const void* w;  // bf16 rows, or chunks of a tier
  const void* x;
  void* y;
  const float *norm, *bias;
  int stride, out, in;  // stride: elements; of a tier chunks of a tile
  float eps;
  Place from, old, to;
  Into into;
  bool y_float, pairs, chooses;  // chooses: y are the logits from which an id is chosen
  Tier tier;

  __device__ __forceinline__ TierMatrix coded() const { return {static_cast<const uint8_t*>(w), stride, tier}; }
  __host__ __device__ __forceinline__ int tiles() const {
    const int outs = tier == Tier::kBf16 ? kTileOuts : kChunkOuts;
    return (out + outs - 1) / outs;
  }
};

struct AttendLink {
  const float *q_weight, *k_weight;
  void *k, *v;  // bf16, or codes with scales
  bf16 *k_scales, *v_scales, *out;
  float q_eps, k_eps;
  Place from, to;
};

// What all attention of a step has in common.
struct AttendStep {
  const float* cos_sin;
  const int32_t *sequences, *lengths, *slots, *page_table;
  int pages, heads, kv_heads;  // pages: of a sequence
  float scale;                 // times log2(e)
  int parts;                   // room for parts of one head
};

struct alignas(16) Link {
  enum class Kind : int32_t { kProduct, kAttend };
  Kind kind;
  int first;  // the block that takes the first tile or part
  union {
    ProductLink product;
    AttendLink attend;
  };
};
static_assert(sizeof(Link) % 16 == 0 && sizeof(Link) <= 16 * 32);

// The end of a step: the id of the largest logit, and with a ring the move to the next.
struct Choice {
  int32_t *sampled, *rows_done;
  AdvanceArguments advance;
  IdRing ring;
};

constexpr int kWorthALaunch = 5;
constexpr int64_t kMostColumns = 32768;  // of a tensor that is read in the same launch
// Tiles that are finished together, of 8 outputs, and of 16 of matrices in a tier: more of these, where memory hides no meeting.
constexpr int kGroup = 4, kCodedGroup = 8;
constexpr int kPartsGroup = std::max(kGroup, kCodedGroup* kChunkOuts / kTileOuts);  // in tiles of 8
// Stages of a block that are under way at once. More bring no more bytes a second, and what blocks send each other queues behind them.
constexpr int kInFlight = 3, kInt8InFlight = 2, kNibblesInFlight = 3, kCodedTokensInFlight = 6;
struct Links {
  AttendStep step;
  int count;
  int staged_bytes, stage_bytes, stages;
  int slots;  // taken
  ChainScratch scratch;
  Choice choice;
  Link links[kMostLinks];
};
static_assert(sizeof(Links) <= 32764);  // of a kernel's parameters

// Tags tell launches apart for this many; then all partials are cleared.
constexpr uint32_t kLinkBits = 9, kLaunches = 1u << (32 - kLinkBits);
static_assert(kMostLinks < 1 << kLinkBits);

// A stage holds a piece of 8 rows of weights, or keys and values of two warps.
template <int kDim>
constexpr int kStageBytes =
    std::max(kWeightStageBytes, 2 * std::max(WarpTile<kDim, false>::kBytes, WarpTile<kDim, true>::kBytes));
constexpr int kCodedStageBytes = std::max(kStageBytes<128>, tier_stage_bytes(Tier::kInt8));
constexpr int kPartStages = kPartWarps / 2;

// The slots and words of a launch, as a link sees them.
struct Mail {
  // By link: blocks that have sent all of a product, or units of attention that are on their way; behind these parts.
  int32_t* sent;
  int expected;  // of the link before
  Slot* slots;
  Word* partials;
  uint32_t launch_tag;
  int link;  // this one

  __device__ __forceinline__ uint32_t tag() const { return launch_tag + link + 1; }
};

// Most of what others sent is on its way, or there: reading it before would only be in the way, of weights in a tier less.
constexpr int kSentEighths = 6, kCodedSentEighths = 4;
__device__ __forceinline__ void wait_until_sent(const int32_t* sent, int expected, int eighths = kSentEighths) {
  while (load_index(sent) < expected * eighths / 8) {
  }
}
__device__ __forceinline__ void say_sent(int32_t* sent, int count) {
  __syncwarp();
  if (threadIdx.x % 32 == 0)
    asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;" ::"l"(sent), "r"(count) : "memory");
}

// Of logits, the larger one is the larger number, among equals the one with the lowest id; one that is not finite is the largest.
using Candidate = unsigned long long;
__device__ __forceinline__ Candidate& best_of_block() {
  __shared__ Candidate best;
  return best;
}
// By all lanes of a warp; of one that has none `mine` is false.
__device__ __forceinline__ void offer(int id, float v, bool mine) {
  constexpr uint32_t kNotFinite = 0xffffffffu, kSign = 0x80000000u;
  const uint32_t bits = __float_as_uint(v + 0.0f);  // no -0
  const uint32_t place = !mine ? 0 : !isfinite(v) ? kNotFinite : bits & kSign ? ~bits : bits | kSign;
  const uint32_t most = __reduce_max_sync(kAllLanes, place);
  const uint32_t below = __reduce_max_sync(kAllLanes, place == most ? ~static_cast<uint32_t>(id) : 0);
  if (threadIdx.x % 32 == 0) atomicMax(&best_of_block(), Candidate{most} << 32 | below);
}
// -1: some logit was not finite.
__device__ __forceinline__ int id_of(Candidate best) {
  return best >> 32 == 0xffffffffu ? -1 : static_cast<int>(~static_cast<uint32_t>(best));
}
__device__ __forceinline__ Candidate* best_of_all(const ChainScratch& scratch) {
  return reinterpret_cast<Candidate*>(scratch.counters + kChainCounters - 2);
}
// By one thread, when all blocks have offered their best.
__device__ __forceinline__ void choose(const Choice& c, Candidate* best) {
  const int id = id_of(atomicExch(best, 0));
  *c.sampled = id;
  if (!c.ring.words) return;
  advance_row(c.advance, 0, id);
  publish_row(c.ring, 0, 1, id, c.rows_done);
}

// A source of the words of parts of a head, for output d, by a warp whose lanes have the same head: each reads the scores of one part for
// all.
template <int kDim>
struct MailParts {
  const Word* words;
  uint32_t tag;
  int d;
  using Raw = Word;
  // A word, or what stands for one that there is not.
  struct At {
    const Word* word;
    bool exists;
    float instead;
  };
  __device__ __forceinline__ Raw begin(const At& at) const {
    return read_word(at.word, at.exists, Word{tag} << 32 | __float_as_uint(at.instead));
  }
  __device__ __forceinline__ bool is_there(Raw raw) const { return static_cast<uint32_t>(raw >> 32) == tag; }
  struct Batch {
    Word raw[kPartBatch + 2];
    float my_factor;
    __device__ __forceinline__ float value(int j) const { return float_of(raw[j]); }
    __device__ __forceinline__ float most() const { return warp_max(float_of(raw[kPartBatch])); }
    __device__ __forceinline__ void weigh(float most, int count) {
      my_factor = my_part() < count ? exp2f(float_of(raw[kPartBatch]) - most) : 0.0f;
    }
    __device__ __forceinline__ float factor(int j) const { return __shfl_sync(kAllLanes, my_factor, j); }
    __device__ __forceinline__ float total(int j) const {
      return __shfl_sync(kAllLanes, float_of(raw[kPartBatch + 1]), j);
    }
  };
  __device__ __forceinline__ static int my_part() { return threadIdx.x % 32 % kPartBatch; }
  __device__ __forceinline__ Batch read(int begin, int parts) const {
    constexpr int kPart = kDim + 2;
    const Word *values = words + begin * kPart + d, *scores = words + (begin + my_part()) * kPart + kDim;
    const bool has_mine = begin + my_part() < parts;
    Batch b;
    const auto word = [&](int i) {
      if (i < kPartBatch) return At{values + i * kPart, begin + i < parts, 0};
      return i == kPartBatch ? At{scores, has_mine, -INFINITY} : At{scores + 1, has_mine, 0};
    };
    fetch(*this, word, b.raw);
    return b;
  }
};

__device__ __forceinline__ GemvArguments arguments_of(const ProductLink& link) {
  GemvArguments a = {};
  a.stride = link.stride;
  a.out = link.out;
  a.in = link.in;
  a.x = link.x;
  a.rows = 1;
  a.norm = link.norm;
  a.eps = link.eps;
  a.bias = link.bias;
  a.y = link.y;
  a.y_float = link.y_float;
  a.pairs = link.pairs;
  a.into = link.into;
  return a;
}

// x, what is added to, and the outputs in slots.
struct MailEnds {
  const ProductLink& link;
  Mail mail;
  int before;           // blocks or units that x comes from
  int awaited_eighths;  // of them
  static constexpr bool kFarArguments = false;
  // What becomes of a result.
  struct Later {
    int out;
    bool sends;  // of two bf16 the first does
    float bias;
    Slot old;
    char* y;
    Slot* slot;  // null: nobody reads it
  };

  template <Staging kStaging>
  __device__ __forceinline__ void stage(const GemvArguments& a, int team, int padded, char* staged) const {
    if (link.from < 0) {
      if (team == 0) PlainEnds().stage<kStaging>(a, team, padded, staged);
      return;
    }
    const Crew<2> crew = {kUsers, team};
    const auto norm = first_weights<2>(a, crew);
    // One asks for all: as a rule of a warp that did not finish what the link before multiplied.
    if (threadIdx.x == Ring<true>::kAllUsers - 32) wait_until_sent(mail.sent + mail.link - 1, before, awaited_eighths);
    __syncwarp();
    meet_all();
    if (a.norm) {
      const SlotPairs row = {mail.slots + link.from, a.in / 2};
      const auto sum_of_all = [&](float v, float) { return sum_of_teams(v, team); };
      return stage_normed<kStaging>(a, norm, row, padded, crew, sum_of_all, reinterpret_cast<uint32_t*>(staged));
    }
    const SlotQuads row = {mail.slots + link.from, a.in / 8};
    constexpr int kBatch = 2, kAll = Ring<true>::kAllUsers;  // batches of 8 inputs, whose loads are in flight together
#pragma unroll 1
    for (int first = threadIdx.x; first < padded / 8; first += kBatch * kAll) {
      uint4 raw[kBatch];
      fetch(
          row, [&](int i) { return first + i * kAll; }, raw);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int c = first + i * kAll;
        if (c < padded / 8) reinterpret_cast<uint4*>(staged)[c] = placed<kStaging>(raw[i]);
      }
    }
  }

  // Before x is there.
  __device__ __forceinline__ Later prepare(const GemvArguments& a, const Result& result) const {
    constexpr float kNone = -0.0f;  // changes no sum
    const int out = result.out, output = a.pairs ? out / 2 : out;
    const bool sends = result.mine && out % (a.y_float ? 1 : a.pairs ? 4 : 2) == 0;
    Later l = {out, sends, kNone, kEmpty, static_cast<char*>(a.y) + int64_t{output} * (a.y_float ? 4 : 2), nullptr};
    if (link.to >= 0) l.slot = mail.slots + link.to + (a.y_float ? output : output / 2);
    if (a.bias && result.mine) l.bias = a.bias[output + (a.pairs ? out % 2 * (a.out / 2) : 0)];
    if (a.into == Into::kAdd && result.mine) l.old = old(a, out);  // written two links ago or earlier
    return l;
  }
  __device__ __forceinline__ void send_for_old(const GemvArguments&, Later&) const {}
  __device__ __forceinline__ void finish(const GemvArguments& a, const Later& l, float v) const {
    v += l.bias;
    if (a.into == Into::kAdd) return send(l, __float_as_uint(awaited_old(l) + v));
    if (a.y_float) {
      send(l, __float_as_uint(v));
      if (link.chooses) offer(l.out, v, l.sends);
      return;
    }
    const float next = __shfl_down_sync(kAllLanes, v, 1);
    if (!a.pairs) return send(l, pack_bf16(v, next));
    const float gated = silu(v) * next;
    send(l, pack_bf16(gated, __shfl_down_sync(kAllLanes, gated, 2)));
  }
  __device__ __forceinline__ void all_finished() const { say_sent(mail.sent + mail.link, 1); }

 private:
  __device__ __forceinline__ Slot old(const GemvArguments& a, int out) const {
    if (link.old < 0) return __float_as_uint(static_cast<const float*>(a.y)[out]);
    return read_slot(mail.slots + link.old + out);
  }
  __device__ __forceinline__ float awaited_old(const Later& l) const {
    Slot o = l.old;
    while (l.sends && link.old >= 0 && o == kEmpty) o = read_slot(mail.slots + link.old + l.out);
    return __uint_as_float(o);
  }
  // A float, or two bf16.
  __device__ __forceinline__ static void send(const Later& l, uint32_t value) {
    if (!l.sends) return;
    if (l.slot) send_slot(l.slot, value);
    *reinterpret_cast<uint32_t*>(l.y) = value;
  }
};

// What weights a launch has: all BF16, all in one tier, or any. A kernel for any has too few registers, and more instructions than are kept near.
enum class Forms {
  kPlain = static_cast<int>(Tier::kBf16),
  kInt8 = static_cast<int>(Tier::kInt8),
  kW8 = static_cast<int>(Tier::kW8),
  kInt4 = static_cast<int>(Tier::kInt4),
  kW4 = static_cast<int>(Tier::kW4),
  kAny = -1
};
template <Forms kForms>
using CodedOf = std::conditional_t<kForms == Forms::kAny, CodedWeights<1>, TierWeights<static_cast<Tier>(kForms), 1>>;
template <Forms kForms>
__device__ __forceinline__ bool is_coded(const ProductLink& p) {
  return kForms == Forms::kAny ? p.tier != Tier::kBf16 : kForms != Forms::kPlain;
}

__device__ __forceinline__ int share_of(int first) {
  const int mine = static_cast<int>(blockIdx.x) - first;
  return mine < 0 ? mine + static_cast<int>(gridDim.x) : mine;
}

// The runs of parts of a step's attention, the same in all layers: item i is run i % runs of KV head i / runs.
struct Parts {
  PartRuns of;
  int length, items;
  const int32_t* pages;

  __device__ __forceinline__ int head_of(int item) const { return item / of.runs; }
  __device__ __forceinline__ int first_of(int item) const { return item % of.runs * of.of_run; }
  __device__ __forceinline__ int count_of(int item) const { return min(of.of_run, of.parts - first_of(item)); }
};
__device__ __forceinline__ Parts parts_of(const AttendStep& s) {
  if (!s.lengths) return {};
  const int length = load_index(s.lengths);
  const PartRuns runs = runs_of(length, s.kv_heads, static_cast<int>(gridDim.x));
  const int32_t* pages = s.page_table + int64_t{load_index(s.sequences)} * s.pages;
  return {runs, length, runs.runs * s.kv_heads, pages};
}

// Sends for the keys and values of earlier steps, 32 tokens a stage.
template <typename Tile, bool kCodes>
__device__ __forceinline__ void send_tokens(const AttendLink& a, const AttendStep& s, const Parts& p, int first,
                                            Ring<true>& ring) {
  constexpr int kRow = Tile::kRow;
  constexpr int kTiles = 32 / kWarpTokens, kScaleBytes = kWarpTokens * 2;
  // Of a copying warp the first lanes send for keys, the next for values, a token each. Codes lie as they will in a tile: the first warp's
  // lanes send for a tile's keys, its values and the scales of both.
  constexpr int kTokens = 32 / Ring<true>::kCopyWarps;
  const int lane = threadIdx.x % 32, warp = (threadIdx.x - Ring<true>::kAllUsers) / 32;
  const int token = kCodes ? lane / 4 * kWarpTokens : warp * kTokens + lane % kTokens;
  const int is_value = kCodes ? lane % 2 : lane / kTokens;
  const bool is_scales = kCodes && lane % 4 > 1, may_send = kCodes ? warp == 0 && lane < kTiles * 4 : is_value < 2;
  const char* cache = static_cast<const char*>(is_value == 0 ? a.k : a.v);
  if (is_scales) cache = reinterpret_cast<const char*>(is_value == 0 ? a.k_scales : a.v_scales);
  const int row_bytes = is_scales ? 2 : kRow;
  const uint32_t to =
      token / kWarpTokens * Tile::kBytes + (is_scales ? Tile::kScales + is_value * kScaleBytes
                                                      : is_value * Tile::kValues + token % kWarpTokens * Tile::kPitch);
  const uint64_t policy = read_once();
#pragma unroll 1
  for (int item = first; item < p.items; item += gridDim.x) {
    const int kv_head = p.head_of(item), begin = p.first_of(item) * kSplitTokens;
    const int stages = p.count_of(item) * kPartStages;
#pragma unroll 1
    for (int i = 0; i < stages; ++i) {
      const int t = begin + i * 32 + token, count = max(0, min(32, p.length - 1 - begin - i * 32));
      const bool sends = may_send && token < count;
      const int64_t at =
          sends ? cache_row(load_index(p.pages + t / kPageTokens), t % kPageTokens, kv_head, s.kv_heads, row_bytes) : 0;
      // Scales of all of a tile's tokens, there or not.
      const int bytes = !kCodes ? kRow : is_scales ? kScaleBytes : min(count - token, kWarpTokens) * kRow;
      ring.wait_empty();
      ring.wait_in_flight(ring.most_in_flight);
      const int tiles = kCodes ? (count + kWarpTokens - 1) / kWarpTokens : 0;  // that have scales
      if (warp == 0 && lane == 0) expect_bytes(ring.full(), count * 2 * kRow + tiles * 2 * kScaleBytes);
      if (sends) copy_bulk(ring.address() + to, cache + at, bytes, ring.full(), policy);
      ring.next();
    }
  }
}

// Brings the norms of a link to L2, ahead of the weights.
constexpr int kLinksAhead = 4;
__device__ __forceinline__ void bring_norms(const Link* links, int n, int count, int head_dim) {
  if (n >= count) return;
  const Link& link = links[n];
  if (link.kind == Link::Kind::kProduct) {
    if (link.product.norm) prefetch_bulk(link.product.norm, link.product.in * 4);
  } else {
    prefetch_bulk(link.attend.q_weight, head_dim * 4);
    prefetch_bulk(link.attend.k_weight, head_dim * 4);
  }
}

// What the copying warps do.
template <int kDim, Forms kForms, bool kCodes>
__device__ __forceinline__ void send_links(const Link* links, int count, const AttendStep& step, Ring<true>& ring) {
  const Parts parts = parts_of(step);
#pragma unroll 1
  for (int n = 0; n < count; ++n) {
    const Link& link = links[n];
    const int first = share_of(link.first);
    if (n % gridDim.x == blockIdx.x && threadIdx.x == Ring<true>::kAllUsers)
      bring_norms(links, n + kLinksAhead, count, kDim);
    if (link.kind == Link::Kind::kProduct) {
      const ProductLink& p = link.product;
      const Tiles tiles = {first, static_cast<int>(gridDim.x), p.tiles()};
      if (is_coded<kForms>(p)) {
        ring.most_in_flight = p.tier == Tier::kInt4 || p.tier == Tier::kW4 ? kNibblesInFlight : kInt8InFlight;
        send_chunks(p.coded(), tiles, ring);
        ring.most_in_flight = kInFlight;
      } else {
        send_weights(static_cast<const bf16*>(p.w), p.stride, p.out, tiles, ring);
      }
    } else {
      if (kCodes) ring.most_in_flight = min(kCodedTokensInFlight, ring.stages - 1);
      send_tokens<WarpTile<kDim, kCodes>, kCodes>(link.attend, step, parts, first, ring);
      ring.most_in_flight = kInFlight;
    }
  }
  ring.wait_all_empty();
}

// Two outputs of a head, one after the other.
__device__ __forceinline__ void send_outputs(const AttendLink& a, const Mail& mail, int64_t at, float low, float high) {
  const uint32_t pair = pack_bf16(low, high);
  *reinterpret_cast<uint32_t*>(a.out + at) = pair;
  if (a.to >= 0) send_slot(mail.slots + a.to + at / 2, pair);
}

// The new token of a KV head, as the cache has it: first the key, then the value, then their scales.
template <int kDim, bool kCodes>
struct NewToken {
  using T = WarpTile<kDim, kCodes>;
  static constexpr int kRow = T::kRow, kScales = 2 * kRow, kBytes = kScales + 16;
  char* at;

  __device__ __forceinline__ void keep(int is_value, float scale) const {
    if (kCodes && threadIdx.x % 32 == 0) store_float(reinterpret_cast<bf16*>(at + kScales) + is_value, scale);
  }
  // To its place among a tile's 16, by the tile's warp. Pieces of codes lie as they will in the tile.
  __device__ __forceinline__ void put(char* tile, int token) const {
    constexpr int kPieces = kRow / 16;
    const int lane = threadIdx.x % 32, is_value = lane / 16, piece = lane % 16;
    if (piece < kPieces) {
      reinterpret_cast<uint4*>(tile + is_value * T::kValues + token * T::kPitch)[piece] =
          reinterpret_cast<const uint4*>(at + is_value * kRow)[piece];
    }
    if (kCodes && piece == 0) {
      reinterpret_cast<bf16*>(tile + T::kScales)[is_value * kWarpTokens + token] =
          reinterpret_cast<const bf16*>(at + kScales)[is_value];
    }
  }
};

// Shared memory of a block's attention: queries, the new token, then the warps' parts.
template <int kDim, bool kCodes>
constexpr int kAttendBytes = Queries<kDim, kCodes>::kBytes + NewToken<kDim, kCodes>::kBytes;
constexpr int attend_bytes(int group) {
  return kAttendBytes<128, false> + kPartWarps * group * WarpTile<128, false>::kPart * 4;
}

// The block's runs of parts of one row's attention, with norm, rotation and append before, by the first team. Each warp takes its tokens
// of all parts of a run before the warps meet.
template <int kDim, bool kCodes>
__device__ __forceinline__ void attend_parts(const AttendLink& a, const AttendStep& s, const Parts& p, int first,
                                             const Mail& mail, char* staged, Ring<true>& ring) {
  using T = WarpTile<kDim, kCodes>;
  constexpr int kChunks = kDim / 8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = s.heads / s.kv_heads;
  const auto head_at = [&](int head) { return SlotHead{mail.slots + a.from + int64_t{head} * (kDim / 2)}; };
  using Asked = Queries<kDim, kCodes>;
  const Asked queries = {reinterpret_cast<bf16*>(staged)};
  const NewToken<kDim, kCodes> fresh = {staged + Asked::kBytes};
  // One warp has the new token, those after it bring a query each, and the next one the new value.
  const int bringer = (p.length - 1) % kSplitTokens / kWarpTokens, new_token = (p.length - 1) % kWarpTokens;
  const int query = (warp - bringer + kPartWarps - 1) % kPartWarps;
#pragma unroll 1
  for (int item = first; item < p.items; item += gridDim.x) {
    const int kv_head = p.head_of(item), first_part = p.first_of(item), count = p.count_of(item);
    const bool is_last = first_part + count == p.of.parts;
    const bool brings = is_last && warp == bringer, asks = query < group,
               brings_value = is_last && query == min(group, kPartWarps - 1);
    const HeadPairs first_weight = load_head(asks ? a.q_weight : a.k_weight, kDim);
    const int slot = brings || brings_value ? load_index(s.slots) : -1;
    const HeadAngles angles = head_angles(s.cos_sin, kDim);
    // Where the thread's words go: first output threadIdx.x of the KV head's query heads, then kUsers further.
    const int64_t first_head = int64_t{kv_head} * group;
    const int run = item - kv_head * p.of.runs, d = threadIdx.x % kDim;
    Word* to = mail.partials + ((first_head + threadIdx.x / kDim) * s.parts + run) * T::kPart + d;
    // Few warps read what the link before sends, and do not ask before whether it is on its way.
    if (item != first) meet();  // queries of an item before are read
    if (asks) {
      queries.put(query, norm_rope(head_at(kv_head * group + query), first_weight, a.q_eps, angles, kDim));
    }
    const int64_t at = slot < 0 ? -1 : cache_row(slot / kPageTokens, slot % kPageTokens, kv_head, s.kv_heads, 1);
    if (brings) {
      const HeadPairs key = norm_rope(head_at(s.heads + kv_head), asks ? load_head(a.k_weight, kDim) : first_weight,
                                      a.k_eps, angles, kDim);
      fresh.keep(0, NewRow<kDim, kCodes>{fresh.at, a.k, a.k_scales, at, new_token}.put(key));
    }
    if (brings_value) {
      uint4 value[1];
      fetch(
          SlotQuads{head_at(s.heads + s.kv_heads + kv_head).slots, kChunks}, [&](int) { return lane; }, value);
      fresh.keep(1, NewRow<kDim, kCodes>{fresh.at + T::kRow, a.v, a.v_scales, at, new_token}.put(value[0]));
    }
    meet();
    const auto tile_at = [&](int w) {
      int stage = ring.stage + w / 2;
      if (stage >= ring.stages) stage -= ring.stages;
      return static_cast<char*>(__cvta_shared_to_generic(ring.memory + stage * ring.stage_bytes + w % 2 * T::kBytes));
    };
    const auto release_part = [&] {
      order_copies();
      for (int i = 0; i < kPartStages; ++i, ring.next()) ring.release();
    };
    const auto parts_of = [&](int w) {
      return reinterpret_cast<float*>(staged + kAttendBytes<kDim, kCodes>) + w * group * T::kPart;
    };
    WarpSums<kDim, kCodes> sums;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      if (i > 0) {
        ring.wait_full(kPartStages - 1);  // so that all of the part before was sent for, and is released once
        __syncwarp();
        release_part();
      }
      const int tokens =
          p.length - ((first_part + i) * kSplitTokens + warp * kWarpTokens);  // from the warp's first one on
      ring.wait_full(warp / 2);
      if (tokens <= 0) continue;
      char* keys = tile_at(warp);
      if (brings && i == count - 1) fresh.put(keys, new_token);
      // Lanes 0 to 15 clear what lies behind the last key, the others values. Of codes any is a number.
      if (!kCodes && lane % 16 >= tokens) {
        uint4* to = reinterpret_cast<uint4*>(keys + lane / 16 * T::kValues + lane % 16 * T::kPitch);
#pragma unroll
        for (int c = 0; c < kChunks; ++c) to[c] = uint4{0, 0, 0, 0};
      }
      __syncwarp();
      TokenScales scales;
      if (kCodes) scales.read(keys + T::kScales);
      sums.add(queries, group, shared_address(keys), tokens, s.scale, scales, i == 0);
    }
    sums.put(group, parts_of(warp));
    meet();
#pragma unroll 1
    for (int h = threadIdx.x / kDim; h < group; h += kUsers / kDim, to += kUsers / kDim * s.parts * T::kPart) {
      const JoinedPart joined = join_warps<kDim, kCodes>(h, d, parts_of);
      if (p.of.runs == 1) {
        const float v = joined.sum / joined.total, next = __shfl_down_sync(__activemask(), v, 1);
        if (d % 2 == 0) send_outputs(a, mail, (first_head + h) * kDim + d, v, next);
        continue;
      }
      send_word(to, joined.sum, mail.tag());
      if (d < 2) send_word(to + kDim, d == 0 ? joined.most : joined.total, mail.tag());
    }
    if (warp == 0) say_sent(mail.sent + mail.link + (p.of.runs == 1 ? 0 : kMostLinks), 1);
    ring.wait_full(kPartStages - 1);
    __syncwarp();
    release_part();
  }
}

// Runs become outputs, by the second team: 32 of a head by one warp, first where there was none to attend to.
template <int kDim>
__device__ __forceinline__ void join_parts(const AttendLink& a, const AttendStep& s, const Parts& p, int first,
                                           const Mail& mail, Ring<true>& ring) {
  constexpr int kUnits = kDim / 32;
  const int warp = threadIdx.x / 32 % kUserWarps, lane = threadIdx.x % 32, blocks = static_cast<int>(gridDim.x);
#pragma unroll 1
  for (int item = first; item < p.items; item += blocks) ring.skip(p.count_of(item) * kPartStages);
  if (p.of.runs == 1) return;
  const int after = (first - p.items) % blocks;
#pragma unroll 1
  for (int unit = after < 0 ? after + blocks : after; unit < s.heads * kUnits; unit += blocks) {
    if (warp != unit % kUserWarps) continue;
    const int64_t head = unit / kUnits;
    const int d = unit % kUnits * 32 + lane;
    if (lane == 0) wait_until_sent(mail.sent + kMostLinks + mail.link, p.items);
    __syncwarp();
    const Word* words = mail.partials + head * s.parts * (kDim + 2);
    const float v = add_parts(MailParts<kDim>{words, mail.tag(), d}, p.of.runs);
    const float next = __shfl_down_sync(kAllLanes, v, 1);
    if (d % 2 == 0) send_outputs(a, mail, head * kDim + d, v, next);
    say_sent(mail.sent + mail.link, 1);
  }
}

template <int kDim, Forms kForms, bool kCodes>
__global__ void __launch_bounds__(Ring<true>::kThreads, 1) chain_kernel(const __grid_constant__ Links c) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint4 shared[];
  __shared__ RingBarriers barriers;
  __shared__ bool last;
  __shared__ Parts parts;      // so that products need no registers for it
  __shared__ int near_stages;  // what is read from here is not read anew from the parameters each time
  // Where a launch's parameters lie is far away: they come here first.
  Link* links = reinterpret_cast<Link*>(shared);
  const int link_chunks = c.count * static_cast<int>(sizeof(Link) / 16);
  for (int i = threadIdx.x; i < link_chunks; i += Ring<true>::kThreads) {
    shared[i] = reinterpret_cast<const uint4*>(c.links)[i];
  }
  char* staged = reinterpret_cast<char*>(shared + link_chunks);
  const ProductRoom room = {staged, reinterpret_cast<float*>(staged + c.staged_bytes)};
  const int team = threadIdx.x / kUsers;  // the last one copies
  Ring<true> ring(barriers, shared_address(room.parts) + parts_bytes(kPartsGroup, 1, Ring<true>::kTeams),
                  kForms == Forms::kPlain ? kStageBytes<kDim> : c.stage_bytes, c.stages);
  if (threadIdx.x == 0) {
    ring.start();
    best_of_block() = 0;
    parts = parts_of(c.step);
    near_stages = c.stages;
  }
  __syncthreads();
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(ring.stages) : "r"(shared_address(&near_stages)));
  ring.most_in_flight = kInFlight;
  if (team == Ring<true>::kTeams) {
    leave_registers<32>();
    return send_links<kDim, kForms, kCodes>(links, c.count, c.step, ring);
  }
  take_registers<112>();

  const ChainScratch& scratch = c.scratch;
  const uint32_t launch = load_index(scratch.counters);
  // Of the two sets of slots the other one, which the launch before used, is emptied for the next.
  const uint32_t set = launch % 2;
  int32_t* used = scratch.counters + 2;
  uint4* other = reinterpret_cast<uint4*>(scratch.slots + (1 - set) * scratch.slot_count);
  const int emptied = load_index(used + 1 - set) / 4, users = static_cast<int>(gridDim.x) * Ring<true>::kAllUsers;
  for (int i = blockIdx.x * Ring<true>::kAllUsers + threadIdx.x; i < emptied; i += users) {
    other[i] = uint4{kEmpty, kEmpty, kEmpty, kEmpty};
  }
  Mail mail = {scratch.counters + 4, 0, scratch.slots + set * scratch.slot_count, scratch.partials,
               launch << kLinkBits,  0};
#pragma unroll 1
  for (int n = 0; n < c.count; ++n) {
    const Link& link = links[n];
    mail.link = n;
    const int before = mail.expected;  // of what the link before sends
    const int first = share_of(link.first);
    // What was staged for the link before is read: all met when it was multiplied.
    if (link.kind == Link::Kind::kAttend) {
      if (team == 0) {
        attend_parts<kDim, kCodes>(link.attend, c.step, parts, first, mail, staged, ring);
      } else {
        join_parts<kDim>(link.attend, c.step, parts, first, mail, ring);
      }
      mail.expected = parts.of.runs == 1 ? parts.items : c.step.heads * (kDim / 32);
      continue;
    }
    const GemvArguments a = arguments_of(link.product);
    const ProductLink& p = link.product;
    mail.expected = min(static_cast<int>(gridDim.x), p.tiles());
    const Tiles tiles = {first, static_cast<int>(gridDim.x), p.tiles()};
    if (tiles.first >= tiles.end) continue;
    const MailEnds ends = {p, mail, before, is_coded<kForms>(p) ? kCodedSentEighths : kSentEighths};
    if constexpr (kForms != Forms::kPlain) {
      if (is_coded<kForms>(p)) {
        multiply_tiles<CodedOf<kForms>, kCodedGroup>(a, p.coded(), tiles, p.stride * kChunkIn, team, room, ring, ends);
        continue;
      }
    }
    if constexpr (kForms == Forms::kPlain || kForms == Forms::kAny) {
      const int padded = (p.stride + kStep - 1) / kStep * kStep;
      multiply_tiles<PlainWeights<2, 1>, kGroup>(a, p.stride, tiles, padded, team, room, ring, ends);
    }
  }
  // The last block to leave makes the counters what the next launch expects.
  meet_all();
  if (team > 0) return;
  if (threadIdx.x == 0 && c.choice.sampled) atomicMax(best_of_all(scratch), best_of_block());
  if (threadIdx.x == 0) last = add_in_order(scratch.counters + 1, 1) == static_cast<int>(gridDim.x) - 1;
  meet();
  if (!last) return;
  const bool again = launch + 1 == kLaunches;
  for (int64_t i = threadIdx.x; again && i < scratch.partial_count; i += kUsers) scratch.partials[i] = 0;
  for (int i = threadIdx.x; i < 2 * kMostLinks; i += kUsers) mail.sent[i] = 0;
  if (threadIdx.x == 0) {
    scratch.counters[0] = again ? 0 : launch + 1;
    scratch.counters[1] = 0;
    used[set] = c.slots;
    if (c.choice.sampled) choose(c.choice, best_of_all(scratch));
  }
#endif
}

// Shared memory in front of the stages.
int64_t bytes_before(int64_t links, int64_t staged_bytes) {
  return links * static_cast<int64_t>(sizeof(Link)) + staged_bytes + parts_bytes(kPartsGroup, 1, Ring<true>::kTeams) +
         kStageAlignment;
}
// Whether enough stages fit behind it.
constexpr int fewest_stages(bool coded) {
  return std::max(kPartStages, (coded ? kNibblesInFlight : kInFlight) + 1);
}
bool has_room(const Queue& queue, int64_t links, int64_t staged_bytes, bool coded) {
  const int stage = coded ? kCodedStageBytes : kStageBytes<128>;
  return bytes_before(links, staged_bytes) + fewest_stages(coded) * stage <= queue.block_shared_bytes;
}

template <int kDim, Forms kForms, bool kCodes>
void run(const Queue& queue, Links& links) {
  static SharedMemory memory;
  const auto kernel = chain_kernel<kDim, kForms, kCodes>;
  memory.allow(reinterpret_cast<const void*>(kernel), queue.block_shared_bytes);
  const int before = static_cast<int>(bytes_before(links.count, links.staged_bytes));
  links.stage_bytes = std::max(links.stage_bytes, kStageBytes<kDim>);
  links.stages = std::min(kMostStages, (queue.block_shared_bytes - before) / links.stage_bytes);
  CHECK(links.stages >= fewest_stages(kForms != Forms::kPlain));
  launch_together(queue, kernel, queue.multiprocessors, Ring<true>::kThreads,
                  static_cast<size_t>(before + links.stages * links.stage_bytes), links);
}

template <int kDim, bool kCodes>
void run(const Queue& queue, Links& links, Forms forms) {
  switch (forms) {
    case Forms::kPlain:
      return run<kDim, Forms::kPlain, kCodes>(queue, links);
    case Forms::kInt8:
      return run<kDim, Forms::kInt8, kCodes>(queue, links);
    case Forms::kW8:
      return run<kDim, Forms::kW8, kCodes>(queue, links);
    case Forms::kInt4:
      return run<kDim, Forms::kInt4, kCodes>(queue, links);
    case Forms::kW4:
      return run<kDim, Forms::kW4, kCodes>(queue, links);
    default:
      return run<kDim, Forms::kAny, kCodes>(queue, links);
  }
}
template <int kDim>
void run(const Queue& queue, Links& links, Forms forms, bool coded_kv) {
  coded_kv ? run<kDim, true>(queue, links, forms) : run<kDim, false>(queue, links, forms);
}

}  // namespace

struct Chain::State {
  Links links = {};
  std::vector<std::function<void()>> alone;
  std::map<const void*, Place> tensors;  // written by links
  const void* last = nullptr;            // what the last link wrote
  int head_dim = 0;
  std::set<Forms> forms;  // of its weights
  bool coded_kv = false;
  int next_block = 0;  // that takes the next tile: blocks with less to do in one link have more in another

  Forms form() const { return forms.size() == 1 ? *forms.begin() : Forms::kAny; }
  bool coded() const { return forms.size() > forms.count(Forms::kPlain); }
  // The next link, with a place for what it writes; null where there is none.
  Link* add(const void* out, int64_t slots, std::function<void()> by_itself) {
    if (links.slots + slots > links.scratch.slot_count) return nullptr;
    tensors[out] = slots > 0 ? links.slots : -1;
    links.slots += static_cast<int>((slots + 3) / 4 * 4);
    last = out;
    alone.push_back(std::move(by_itself));
    return &links.links[links.count++];
  }
};

Chain::Chain(const Queue& queue, ChainScratch scratch) : queue_(queue), state_(std::make_unique<State>()) {
  state_->links.scratch = scratch;
}
Chain::~Chain() = default;

bool Chain::product(const CudaLinear& w, Tier tier, Tensor x, const Norm* norm, Into into, Tensor out,
                    std::function<void()> alone) {
  const bool pairs = w.order == CudaLinear::Order::kPairs;
  if (x.rows != 1 || w.in % 8 != 0 || out.cols % 2 != 0 || pairs != (into == Into::kSiluPairs)) return false;
  const bool is_float = out.dtype == DType::kF32;
  if (reinterpret_cast<uintptr_t>(out.data) % 4 != 0) return false;  // two bf16 are written at once
  if (into != Into::kStore && is_float != (into == Into::kAdd)) return false;
  if (into != Into::kStore && into != Into::kAdd && into != Into::kSiluPairs) return false;
  State& s = *state_;
  if (s.links.count == kMostLinks || (s.links.count > 0 && s.last != x.data)) launch();
  // The last of a chain, such as logits, has no reader: it takes no slots.
  const bool has_reader = out.cols <= kMostColumns;
  const int number = s.links.count;
  const bool coded = tier != Tier::kBf16;
  const int bytes = std::max(s.links.staged_bytes,
                             coded ? coded_staged_bytes(1, w.coded.chunks) : staged_bytes(1, padded_columns(w)));
  if (!has_room(queue_, number + 1, bytes, s.coded() || coded)) return false;
  const auto before = s.tensors.find(out.data);
  const Place old = into == Into::kAdd && before != s.tensors.end() ? before->second : -1;
  const Place from = number > 0 ? s.tensors.at(x.data) : -1;
  Link* link = s.add(out.data, !has_reader ? 0 : out.dtype == DType::kF32 ? out.cols : out.cols / 2, std::move(alone));
  if (!link) return false;
  const GemvArguments a = gemv_arguments(w, x, norm, into, out);
  link->kind = Link::Kind::kProduct;
  link->first = s.next_block;
  ProductLink& p = link->product;
  p = {coded ? static_cast<const void*>(w.coded.data) : a.w,
       a.x,
       a.y,
       a.norm,
       a.bias,
       coded ? w.coded.chunks : static_cast<int>(a.stride),
       a.out,
       a.in,
       a.eps,
       from,
       old,
       s.tensors.at(out.data),
       into,
       a.y_float,
       a.pairs,
       false,
       tier};
  s.links.staged_bytes = bytes;
  s.forms.insert(static_cast<Forms>(tier));
  if (coded) s.links.stage_bytes = std::max(s.links.stage_bytes, tier_stage_bytes(tier));
  s.next_block = (s.next_block + p.tiles()) % queue_.multiprocessors;
  if (!has_reader) s.last = nullptr;
  return true;
}

bool Chain::attend(Tensor qkv, const HeadNorms& norms, const Step& step, KvLayer cache, const AttentionShape& shape,
                   Tensor out, std::function<void()> alone) {
  State& s = *state_;
  const int pages = static_cast<int>(step.page_table.cols),
            parts = (pages * kPageTokens + kSplitTokens - 1) / kSplitTokens;
  const bool follows = s.links.count > 0 && s.links.count < kMostLinks && s.last == qkv.data;
  const bool fits = int64_t{shape.heads} * parts * (shape.head_dim + 2) <= s.links.scratch.partial_count;
  const int bytes = std::max(s.links.staged_bytes, attend_bytes(shape.heads / shape.kv_heads));
  if (qkv.rows != 1 || !attends_in_bulk(queue_, shape) || !follows || !fits) return false;
  if (!has_room(queue_, s.links.count + 1, bytes, s.coded())) return false;
  CHECK(s.head_dim == 0 || s.head_dim == shape.head_dim);
  Link* link = s.add(out.data, out.cols / 2, std::move(alone));
  if (!link) return false;
  s.head_dim = shape.head_dim;
  s.coded_kv = cache.k_scales.data != nullptr;
  link->kind = Link::Kind::kAttend;
  link->first = s.next_block;
  link->attend = {norms.q.weight.row<float>(0),
                  norms.k.weight.row<float>(0),
                  cache.k.data,
                  cache.v.data,
                  static_cast<bf16*>(cache.k_scales.data),
                  static_cast<bf16*>(cache.v_scales.data),
                  out.row<bf16>(0),
                  norms.q.eps,
                  norms.k.eps,
                  s.tensors.at(qkv.data),
                  s.tensors.at(out.data)};
  s.links.step = {norms.cos_sin.row<float>(0),
                  step.sequences.row<int32_t>(0),
                  step.lengths.row<int32_t>(0),
                  step.slots.row<int32_t>(0),
                  step.page_table.row<int32_t>(0),
                  pages,
                  shape.heads,
                  shape.kv_heads,
                  shape.scale * kLog2e,
                  parts};
  s.links.staged_bytes = bytes;
  return true;
}

bool Chain::choose(Tensor logits, const Step& step, SampleScratch scratch, IdRing ring) {
  Links& c = state_->links;
  if (c.count < kWorthALaunch || logits.rows != 1) return false;
  Link& last = c.links[c.count - 1];
  if (last.kind != Link::Kind::kProduct) return false;
  ProductLink& p = last.product;
  if (p.y != logits.data || !p.y_float || p.into != Into::kStore || p.out != logits.cols) return false;
  p.chooses = true;
  c.choice = {step.sampled.row<int32_t>(0), scratch.counters + kGemvRows, {}, ring};
  if (ring.words) c.choice.advance = advance_arguments(step);
  launch();
  return true;
}

void Chain::launch() {
  Links& c = state_->links;
  if (c.count < kWorthALaunch) {
    for (const auto& link : state_->alone) link();
  } else if (state_->head_dim == 64) {
    run<64>(queue_, c, state_->form(), state_->coded_kv);
  } else {
    run<128>(queue_, c, state_->form(), state_->coded_kv);
  }
  const ChainScratch scratch = c.scratch;
  *state_ = {};
  c.scratch = scratch;
}

}  // namespace vireo::cuda
