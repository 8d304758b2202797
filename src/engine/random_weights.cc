// SPDX-License-Identifier: Apache-2.0
#include "engine/random_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <span>

#include "base/thread_pool.h"
#include "engine/random_values.h"
#include "files/output_file.h"
#include "files/shard.h"

namespace vireo {
namespace {

constexpr int64_t kChunk = 1 << 20;   // elements made and written at once: 2 MiB
constexpr size_t kChunksPerRun = 32;  // between two reports of progress

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}
bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Inputs of one output element: columns of a matrix, the whole kernel of a convolution; experts are [expert, in, out].
double fan_in(const HostTensor& t) {
  if (has(t.name, ".experts.")) return static_cast<double>(t.shape[1]);
  return static_cast<double>(t.size()) / static_cast<double>(t.shape[0]);
}

// Linear layers keep the size of what they read. What they add to the stream is larger than an embedding, so that a model
// whose head is its embedding does not just repeat its last token.
NormalDistribution distribution_of(const HostTensor& t) {
  if (has(t.name, "norm") && ends_with(t.name, ".weight")) return {1, 0.05};
  if (ends_with(t.name, ".bias")) return {0, 0.02};
  if (has(t.name, "embed_tokens")) return {0, 0.02};
  if (has(t.name, "pos_embed")) return {0, 0.1};
  return {0, 1 / std::sqrt(fan_in(t))};
}

std::vector<Shard> plan_shards(const std::vector<TensorShape>& tensors, uint64_t max_bytes) {
  std::vector<Shard> shards;
  uint64_t used = 0;
  for (const TensorShape& t : tensors) {
    const HostTensor tensor{t.name, DType::kBF16, t.shape};
    if (shards.empty() || used + tensor.bytes() > max_bytes) {
      shards.emplace_back();
      used = 0;
    }
    used += tensor.bytes();
    shards.back().tensors.push_back(tensor);
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = shards.size() == 1 ? "model.safetensors"
                                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

struct Chunk {
  const RandomValues* values;
  int64_t first;  // element of the tensor
  int64_t count;
  uint64_t offset;  // byte of the file
};

class Writer {
 public:
  Writer(const RandomWeights& options, uint64_t total, const Progress& progress)
      : options_(options), pool_(options.threads), total_(total), progress_(progress) {
    for (int i = 0; i < pool_.size(); ++i) buffers_.emplace_back(kChunk);
  }

  void write(const Shard& shard) {
    OutputFile file(options_.folder / shard.file);
    const std::string header = shard_header(shard);
    file.write(0, header);
    uint64_t offset = header.size();
    for (const HostTensor& t : shard.tensors) {
      write_tensor(file, t, offset);
      offset += t.bytes();
    }
    file.close();
  }

 private:
  void write_tensor(const OutputFile& file, const HostTensor& t, uint64_t offset) {
    const RandomValues values(options_.seed, t.name, distribution_of(t));
    std::vector<Chunk> chunks;
    for (int64_t first = 0; first < t.size(); first += kChunk) {
      const int64_t count = std::min(kChunk, t.size() - first);
      chunks.push_back({&values, first, count, offset + static_cast<uint64_t>(first) * sizeof(bf16)});
    }
    for (size_t i = 0; i < chunks.size(); i += kChunksPerRun) {
      write_chunks(file, std::span(chunks).subspan(i, std::min(kChunksPerRun, chunks.size() - i)));
    }
  }

  void write_chunks(const OutputFile& file, std::span<const Chunk> chunks) {
    std::atomic<int> error{0};
    pool_.run(static_cast<int64_t>(chunks.size()), [&](int64_t item, int thread) {
      const Chunk& chunk = chunks[static_cast<size_t>(item)];
      const std::span<bf16> buffer(buffers_[static_cast<size_t>(thread)].data(), static_cast<size_t>(chunk.count));
      chunk.values->fill(chunk.first, buffer);
      const int result = file.try_write(chunk.offset, buffer.data(), buffer.size_bytes());
      if (result != 0) error = result;
    });
    file.check(error);
    for (const Chunk& chunk : chunks) done_ += static_cast<uint64_t>(chunk.count) * sizeof(bf16);
    if (progress_) progress_(done_, total_);
  }

  const RandomWeights& options_;
  ThreadPool pool_;
  std::vector<std::vector<bf16>> buffers_;  // one per thread
  uint64_t done_ = 0;
  uint64_t total_;
  const Progress& progress_;
};

}  // namespace

uint64_t tensor_bytes(const std::vector<TensorShape>& tensors) {
  uint64_t bytes = 0;
  for (const TensorShape& t : tensors) bytes += static_cast<uint64_t>(t.size()) * sizeof(bf16);
  return bytes;
}

void write_random_weights(const RandomWeights& options, const std::vector<TensorShape>& tensors,
                          const Progress& progress) {
  const uint64_t total = tensor_bytes(tensors);
  const std::vector<Shard> shards = plan_shards(tensors, options.max_shard_bytes);
  Writer writer(options, total, progress);
  for (const Shard& shard : shards) writer.write(shard);
  if (shards.size() > 1) write_text_file(options.folder / "model.safetensors.index.json", shard_index(shards));
}

}  // namespace vireo
