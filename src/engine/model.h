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

struct Model {
  Model(const Options& options, const Progress& progress);
  ModelFiles files;
  std::unique_ptr<Backend> backend;
  ModelWeights weights;
  std::unique_ptr<VisionTower> tower;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<Runner> runner;
};

// Bytes of the KV cache and the step scratch for max_seq tokens; refused with Error(kCapacity), naming the three numbers, when weights and
// cache cannot fit in the memory that the machine has available.
uint64_t check_memory(const ModelFiles& files, DType kv_type, int max_seq);

// The first tensor of the checkpoint that holds NaN or infinity: its name and file; empty: none.
std::string find_bad_weight(const Checkpoint& checkpoint);

}  // namespace vireo
