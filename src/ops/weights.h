// What a backend makes of weights: opaque Linears from Backend::place, and plain tensors for what is small.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "ops/tier.h"

namespace vireo {

// y = x W^T + b. Each backend derives its own and is the only one to look inside. groups > 1: one matrix per expert.
class Linear {
 public:
  Linear(int64_t in_features, int64_t out_features, int64_t group_count = 1)
      : in(in_features), out(out_features), groups(group_count) {}
  virtual ~Linear() = default;
  const int64_t in;
  const int64_t out;
  const int64_t groups;
};

// Which projection of which layer a weight is, and the tier in which decode steps read it; prefill reads BF16.
struct Role {
  int layer = -1;  // -1: not of a decoder layer
  std::string projection;
  Tier tier = Tier::kBf16;
  // Its parts, those of expert after expert, as the checkpoint has them in a tier; empty: it has them in BF16 alone.
  std::vector<CodedMatrix> coded = {};
  bool codes_alone = false;  // prefill reads the tier too: nothing is kept in BF16
};

// How the matrix of one expert lies in the checkpoint.
enum class ExpertLayout { kOutIn, kInOut };

// Scale and, for LayerNorm, shift: float32 [1, n] in backend memory.
struct Norm {
  Tensor weight;
  Tensor bias;
  float eps = 1e-6f;
};

// Norms of a head of q and of k, and the rows of cosines and sines that rotate both.
struct HeadNorms {
  Norm q, k;
  Tensor cos_sin;
};

// Angle j of a row is positions[axis[j]] * inv_freq[j]; it turns the pair (j, j + n). Both [1, n] in backend memory, float32
// and I32, n = head_dim / 2.
struct RopeTable {
  Tensor inv_freq;
  Tensor axis;
};

// Patch bytes to values: (v - mean[channel]) / std[channel], both in 0..255.
struct PixelScale {
  float mean[3];
  float std[3];
};

// K and V of one layer, as Backend::allocate_kv lays them out; only that backend looks inside.
struct KvLayer {
  Tensor k;
  Tensor v;
  // BF16, of a cache in KvMode::kInt8.
  Tensor k_scales = {};
  Tensor v_scales = {};
};

struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float scale = 0;
};

// Rows [bounds[i], bounds[i + 1]) attend to each other and to nothing else. Host memory.
struct Spans {
  const int32_t* bounds = nullptr;
  int64_t count = 0;
};

enum class Gelu { kTanh, kErf };

}  // namespace vireo
