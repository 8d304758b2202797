// The weights of a Qwen3-VL model under the checkpoint's own names, placed in a backend. Loading is a walk over these structs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "files/checkpoint.h"
#include "model/projections.h"
#include "ops/backend.h"

namespace vireo {

using LinearPtr = std::unique_ptr<Linear>;

struct VisionBlock {
  Norm norm1, norm2;
  LinearPtr qkv, proj, fc1, fc2;
};

struct Merger {
  Norm norm;  // over one patch row (main) or over a concatenated block of them (DeepStack)
  LinearPtr fc1, fc2;
};

struct VisionWeights {
  LinearPtr patch_embed;  // [hidden, patch_dim]
  Tensor pos_embed;       // BF16 [num_position_embeddings, hidden]
  std::vector<VisionBlock> blocks;
  Merger merger;
  std::vector<Merger> deepstack_mergers;
};

struct DecoderLayer {
  Norm input_layernorm, post_attention_layernorm, q_norm, k_norm;
  LinearPtr qkv, o_proj;
  LinearPtr gate_up, down_proj;  // one group, or one per expert
  LinearPtr router;              // null in dense models
};

struct DecoderWeights {
  LinearPtr embed_tokens;
  std::vector<DecoderLayer> layers;
  Norm norm;
  LinearPtr lm_head;  // null when tied: the head is embed_tokens
  const Linear& head() const { return lm_head ? *lm_head : *embed_tokens; }
};

struct ModelWeights {
  VisionWeights vision;
  DecoderWeights decoder;
  std::vector<OwnedTensor> memory;                 // of norms and tables
  std::vector<std::unique_ptr<bf16[]>> converted;  // tensors whose layout had to change
};

// Called with the bytes placed so far and in all.
using LoadProgress = std::function<void(uint64_t done, uint64_t total)>;

// The checkpoint must outlive the weights; the backend has the plan's tiers. Throws Error naming the tensor, the file and both values.
ModelWeights load_weights(const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend,
                          const LoadProgress& progress = {}, const TierPlan& tiers = {});

// Bytes of all the weights in BF16, whatever the checkpoint has in a tier.
uint64_t bf16_bytes(const Checkpoint& checkpoint, const ModelConfig& config);

// Places anew, one after the other, the projections whose tiers differ between two plans. When it throws, those before have the new tier.
void retier(ModelWeights& weights, const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend,
            const TierPlan& from, const TierPlan& to);

}  // namespace vireo
