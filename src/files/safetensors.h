// One safetensors file, mapped read-only and checked whole before use. The header is untrusted: its length,
// JSON, names, dtypes, shapes and offsets are all verified, so a HostTensor handed out always lies inside the
// mapping. Format: 8 bytes little-endian header length, a JSON header, raw little-endian data.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "base/tensor.h"

namespace vireo {

class MappedFile;

class SafetensorsFile {
 public:
  // Throws Error (kNotFound, kInput) naming the file and what is wrong with it; LFS pointers and files cut
  // short by an interrupted download are named as such.
  static SafetensorsFile open(const std::filesystem::path& path);
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::filesystem::path& path() const { return path_; }
  // In the order of the file's data.
  const std::vector<HostTensor>& tensors() const { return tensors_; }
  // Lets the system have the memory in which it keeps the file; later reads bring it back.
  void leave_memory() const;

 private:
  SafetensorsFile();
  std::filesystem::path path_;
  std::unique_ptr<MappedFile> file_;
  std::vector<HostTensor> tensors_;
};

}  // namespace vireo
