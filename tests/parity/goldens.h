// Stored outputs of the reference implementation: index.json of a golden set, its cases' tensors as float vectors, and the measures of
// closeness.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "files/json.h"
#include "files/safetensors.h"
#include "model/decoder.h"
#include "model/vision.h"
#include "ops/runner.h"

namespace vireo::parity {

// Where a golden set's checkpoint and cases lie; `set` is tiny, random_dense or random_moe.
std::filesystem::path checkpoint_folder(const std::string& set);
Json read_index(const std::string& set);

struct Golden {
  explicit Golden(const std::string& set, const std::string& name);
  SafetensorsFile file;
  std::map<std::string, const HostTensor*> tensors;
  bool has(const std::string& name) const { return tensors.count(name) > 0; }
  std::vector<float> floats(const std::string& name) const;
  std::vector<int64_t> ints(const std::string& name) const;
};

// |a - b| / |b|
double relative_error(const std::vector<float>& a, const std::vector<float>& b);

using RunnerFactory = std::function<std::unique_ptr<Runner>(Backend&, Forward, const RunnerShape&)>;

// A loaded model with its caches, driven below the engine so that every tensor can be seen.
class Rig {
 public:
  Rig(const std::string& set, std::unique_ptr<Backend> backend, int64_t max_rows,
      const RunnerFactory& make_runner = make_eager_runner, int64_t sequences = 1, const TierPlan& tiers = {},
      KvMode kv_mode = KvMode::kBf16);

  struct Prompt {
    std::vector<int32_t> ids;
    std::vector<Position> positions;
    std::vector<int32_t> visual_rows;  // token indices of visual tokens
    int32_t next_position = 0;
    OwnedTensor merged;
    std::vector<OwnedTensor> deepstack;
  };

  // Encodes the case's pictures and clips and works out its positions.
  Prompt prepare(const Golden& golden, const Probe* probe);
  // Rows [begin, end) of the prompt, logits of all of them when `all`, else of the last row if it is the prompt's last.
  void extend(const Prompt& prompt, int64_t begin, int64_t end, bool all, int32_t sequence = 0);
  // The whole prompt, `chunk` rows at a time; logits of its last row.
  void extend_in_chunks(const Prompt& prompt, int64_t chunk);

  // The decode steps that follow begin with `token` at the given cache index of the prompt's sequence: number i for seats[i].
  struct Seat {
    const Prompt& prompt;
    int32_t token;
    int64_t cache_index;
  };
  void seat(const std::vector<Seat>& seats);
  // One decode step with the given input token at the given cache index.
  void decode(const Prompt& prompt, int32_t token, int64_t cache_index);

  // Rows of float32 or bf16.
  std::vector<float> read(Tensor t);
  Runner& runner() { return *runner_; }
  Decoder& decoder() { return *decoder_; }
  Backend& backend() { return *backend_; }
  const ModelConfig& config() const { return config_; }

 private:
  void encode(const Golden& golden, const std::string& kind, int32_t token, Prompt& prompt, const Probe* probe);

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Checkpoint> checkpoint_;
  ModelConfig config_;
  ModelWeights weights_;
  std::unique_ptr<VisionTower> tower_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace vireo::parity
