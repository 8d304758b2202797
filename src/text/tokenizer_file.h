// tokenizer.json as it lies on disk: the two large tables as spans of one string, everything else as JSON.
// Nothing is checked here beyond shape and size; tokenizer_build.h says what it must mean.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "files/json.h"

namespace vireo {

constexpr int32_t kMaxTokens = 1 << 20;  // ids are below

struct TokenizerFile {
  struct Span {
    uint32_t at, size;
  };
  struct Entry {
    Span token;
    int32_t id;
  };
  struct Pair {
    Span left, right;
  };

  std::string name;  // of the file, for errors
  std::string text;
  std::vector<Entry> vocab;  // model.vocab
  std::vector<Pair> merges;  // model.merges, in order of rank
  Json rest;                 // the file, with null in place of those two

  std::string_view view(Span span) const { return std::string_view(text).substr(span.at, span.size); }
};

// Throws Error(kNotFound, kInput, kCapacity).
TokenizerFile read_tokenizer_file(const std::filesystem::path& path);

}  // namespace vireo
