// SPDX-License-Identifier: Apache-2.0
#include "files/shard.h"

#include "files/json.h"

namespace vireo {
namespace {

constexpr size_t kDataAlignment = 64;  // the format asks for 8

}  // namespace

std::string shard_header(const Shard& shard) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t begin = 0;
  for (const HostTensor& t : shard.tensors) {
    const uint64_t end = begin + t.bytes();
    header[t.name] = {{"dtype", name_of(t.dtype)}, {"shape", t.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  while ((text.size() + sizeof(uint64_t)) % kDataAlignment != 0) text += ' ';
  std::string length;
  for (size_t i = 0; i < sizeof(uint64_t); ++i) length += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

std::string shard_index(const std::vector<Shard>& shards) {
  Json index = {{"metadata", {{"total_size", shard_bytes(shards)}}}, {"weight_map", Json::object()}};
  for (const Shard& shard : shards) {
    for (const HostTensor& t : shard.tensors) index["weight_map"][t.name] = shard.file;
  }
  return index.dump(2) + "\n";
}

uint64_t shard_bytes(const std::vector<Shard>& shards) {
  uint64_t bytes = 0;
  for (const Shard& shard : shards) {
    for (const HostTensor& t : shard.tensors) bytes += t.bytes();
  }
  return bytes;
}

}  // namespace vireo
