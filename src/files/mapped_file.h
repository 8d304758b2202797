// Files of the disk as bytes: opened with checks (regular files only, errors that say why), then mapped or
// read whole. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace vireo {

// Takes whole pages of a mapped file's bytes out of this process's memory; later reads bring them back.
void release_pages(const void* data, size_t bytes);

// Whether something has this name. Also true of a dangling link: opening it says what is wrong. Never throws.
bool is_present(const std::filesystem::path& path);

// A read-only descriptor of a regular file, closed by the destructor.
class OpenFile {
 public:
  // Throws Error: kNotFound when nothing is there (a dangling link is named as one), kInput for folders,
  // pipes and files that cannot be opened.
  explicit OpenFile(const std::filesystem::path& path);
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  int descriptor() const { return descriptor_; }
  size_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  size_t size_ = 0;
};

// A whole file mapped read-only, page aligned. An empty file has no bytes. The file must not shrink while it
// is mapped.
class MappedFile {
 public:
  // Throws Error as OpenFile does, and kCapacity when the system cannot map it.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Lets the system have the memory in which it keeps the file; later reads bring it back.
  void leave_memory() const;

 private:
  void unmap();

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace vireo
