// A file that is written, whole or in pieces.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace vireo {

// New, or emptied. All but try_write throw Error naming the file: kCapacity when the disk is full, else kInput.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  // 0 or errno; from any thread.
  int try_write(uint64_t offset, const void* data, size_t bytes) const;
  void write(uint64_t offset, std::string_view text) const { check(try_write(offset, text.data(), text.size())); }
  void check(int error) const;
  void close();

 private:
  std::filesystem::path path_;
  int descriptor_;
};

void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace vireo
