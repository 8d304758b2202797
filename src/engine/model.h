// Model: one loaded checkpoint with everything that is the same for all its conversations.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/prompt.h"
#include "files/checkpoint.h"
#include "model/decoder.h"
#include "model/vision.h"
#include "model/weights.h"
#include "ops/runner.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "vireo/vireo.h"

namespace vireo {

// The files that are needed before any weight is placed.
struct ModelFiles {
  std::filesystem::path folder;
  ModelConfig config;
  PreprocessorConfig preprocessor;
  Tokenizer tokenizer;
  ChatTemplate chat_template;
  Checkpoint checkpoint;
};

ModelFiles open_model(const std::string& checkpoint, const std::filesystem::path& hub_cache);

// Kinds of prompts of which --prefill-graph keeps recordings.
inline constexpr int kRecordedExtends = 8;

struct Model {
  // Both callbacks may be empty.
  Model(const Options& options, const Progress& progress, const OnPlan& on_plan = {});
  // A runner that walks the model op by op whatever the options say, so that a probe sees every step.
  std::unique_ptr<Runner> make_walker();

  // From the tiers of some options to those of others, which passed validate.
  void retier(const Options& from, const Options& to);
  // Prepares what the first picture and the first prompt would wait for.
  void rehearse(const Options& options);

  ModelFiles files;
  std::unique_ptr<Backend> backend;
  ModelInfo info;          // all but load_ms
  RunnerShape step_shape;  // of all runners
  KvMode kv_mode = KvMode::kBf16;
  ModelWeights weights;
  std::unique_ptr<VisionTower> tower;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<Runner> runner;
};

// How bytes of pixels become values.
PixelScale pixel_scale(const PixelConfig& config);

// Refuses with Error(kUsage) another tier than that of which the checkpoint has the codes alone.
void check_stored(const TierPlan& tiers, const ModelConfig& config);
// Bytes of the projections in a tier, which lie beside those in BF16.
uint64_t tier_bytes(const TierPlan& tiers, const TextConfig& config);
// Of what has a tier and is not kept in BF16.
uint64_t bytes_left_out(const TierPlan& tiers, const ModelConfig& config);

// What a model takes of the device's memory, all told.
uint64_t planned_bytes(const ModelInfo& plan);
// Refuses with Error(kCapacity), naming the numbers, when weights, cache and scratch cannot fit in the memory available.
void check_memory(const ModelInfo& plan);

// The first tensor of the checkpoint that holds NaN or infinity: its name and file; empty: none.
std::string find_bad_weight(const Checkpoint& checkpoint);

}  // namespace vireo
