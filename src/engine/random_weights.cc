// SPDX-License-Identifier: Apache-2.0
#include "engine/random_weights.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "base/thread_pool.h"
#include "engine/random_values.h"
#include "files/json.h"
#include "files/quote.h"

namespace vireo {
namespace {

constexpr int64_t kChunk = 1 << 20;    // elements made and written at once: 2 MiB
constexpr size_t kChunksPerRun = 32;   // between two reports of progress
constexpr size_t kDataAlignment = 64;  // of the data in the file; the format asks for 8

[[noreturn]] void throw_write_error(const std::filesystem::path& path, int error) {
  const bool is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw Error(
      is_full ? ErrorKind::kCapacity : ErrorKind::kInput,
      fmt::format("cannot write {}: {}; name another folder with --out", path_text(path), std::strerror(error)));
}

class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path)
      : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (fd_ < 0) throw_write_error(path_, errno);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  // 0 or errno; from any thread.
  int try_write(uint64_t offset, const void* data, size_t bytes) const {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::pwrite(fd_, at, bytes, static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return written < 0 ? errno : EIO;
      at += written;
      offset += static_cast<uint64_t>(written);
      bytes -= static_cast<size_t>(written);
    }
    return 0;
  }
  void write(uint64_t offset, std::string_view text) const { check(try_write(offset, text.data(), text.size())); }
  void check(int error) const {
    if (error != 0) throw_write_error(path_, error);
  }
  void close() { check(::close(std::exchange(fd_, -1)) == 0 ? 0 : errno); }

 private:
  std::filesystem::path path_;
  int fd_;
};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}
bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Inputs of one output element: columns of a matrix, the whole kernel of a convolution; experts are [expert, in, out].
double fan_in(const TensorShape& t) {
  if (has(t.name, ".experts.")) return static_cast<double>(t.shape[1]);
  return static_cast<double>(t.size()) / static_cast<double>(t.shape[0]);
}

// Linear layers keep the size of what they read. What they add to the stream is larger than an embedding, so that a model
// whose head is its embedding does not just repeat its last token.
NormalDistribution distribution_of(const TensorShape& t) {
  if (has(t.name, "norm") && ends_with(t.name, ".weight")) return {1, 0.05};
  if (ends_with(t.name, ".bias")) return {0, 0.02};
  if (has(t.name, "embed_tokens")) return {0, 0.02};
  if (has(t.name, "pos_embed")) return {0, 0.1};
  return {0, 1 / std::sqrt(fan_in(t))};
}

struct Shard {
  std::string file;
  std::vector<TensorShape> tensors;
};

uint64_t bytes_of(const TensorShape& t) {
  return static_cast<uint64_t>(t.size()) * sizeof(bf16);
}

std::vector<Shard> plan_shards(const std::vector<TensorShape>& tensors, uint64_t max_bytes) {
  std::vector<Shard> shards;
  uint64_t used = 0;
  for (const TensorShape& t : tensors) {
    if (shards.empty() || used + bytes_of(t) > max_bytes) {
      shards.emplace_back();
      used = 0;
    }
    used += bytes_of(t);
    shards.back().tensors.push_back(t);
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = shards.size() == 1 ? "model.safetensors"
                                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

// With the eight bytes of its length in front and padded to the alignment of the data.
std::string header_of(const std::vector<TensorShape>& tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t begin = 0;
  for (const TensorShape& t : tensors) {
    const uint64_t end = begin + bytes_of(t);
    header[t.name] = {{"dtype", name_of(DType::kBF16)}, {"shape", t.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  while ((text.size() + sizeof(uint64_t)) % kDataAlignment != 0) text += ' ';
  std::string length;
  for (size_t i = 0; i < sizeof(uint64_t); ++i) length += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
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
    const std::string header = header_of(shard.tensors);
    file.write(0, header);
    uint64_t offset = header.size();
    for (const TensorShape& t : shard.tensors) {
      write_tensor(file, t, offset);
      offset += bytes_of(t);
    }
    file.close();
  }

 private:
  void write_tensor(const OutputFile& file, const TensorShape& t, uint64_t offset) {
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

std::string index_of(const std::vector<Shard>& shards, uint64_t total) {
  Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", Json::object()}};
  for (const Shard& shard : shards) {
    for (const TensorShape& t : shard.tensors) index["weight_map"][t.name] = shard.file;
  }
  return index.dump(2) + "\n";
}

}  // namespace

uint64_t tensor_bytes(const std::vector<TensorShape>& tensors) {
  uint64_t bytes = 0;
  for (const TensorShape& t : tensors) bytes += bytes_of(t);
  return bytes;
}

void write_random_weights(const RandomWeights& options, const std::vector<TensorShape>& tensors,
                          const Progress& progress) {
  const uint64_t total = tensor_bytes(tensors);
  const std::vector<Shard> shards = plan_shards(tensors, options.max_shard_bytes);
  Writer writer(options, total, progress);
  for (const Shard& shard : shards) writer.write(shard);
  if (shards.size() > 1) write_text_file(options.folder / "model.safetensors.index.json", index_of(shards, total));
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(0, text);
  file.close();
}

}  // namespace vireo
