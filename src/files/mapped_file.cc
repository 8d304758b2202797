// See mapped_file.h.
// SPDX-License-Identifier: Apache-2.0
#include "files/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "files/quote.h"
#include "vireo/error.h"

namespace vireo {
namespace {

std::string errno_text(int code) {
  return std::generic_category().message(code);
}

bool is_dangling_link(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_symlink(path, ignored) && !std::filesystem::exists(path, ignored);
}

[[noreturn]] void fail_to_open(const std::filesystem::path& path) {
  const int code = errno;
  const bool absent = code == ENOENT || code == ENOTDIR;
  if (absent && is_dangling_link(path)) {
    throw Error(ErrorKind::kNotFound,
                fmt::format("{} is a link whose target is missing, as an interrupted download leaves it; "
                            "run `hf download` for this model again",
                            path_text(path)));
  }
  throw Error(absent ? ErrorKind::kNotFound : ErrorKind::kInput,
              fmt::format("cannot open {}: {}", path_text(path), errno_text(code)));
}

}  // namespace

void release_pages(const void* data, size_t bytes) {
  const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  // What fails here only leaves less memory to others.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

bool is_present(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) || std::filesystem::is_symlink(path, ignored);
}

// O_NONBLOCK: opening a pipe that nobody writes to must not hang.
OpenFile::OpenFile(const std::filesystem::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) fail_to_open(path);
  struct stat info {};
  if (::fstat(descriptor_, &info) == 0 && S_ISREG(info.st_mode)) {
    size_ = static_cast<size_t>(info.st_size);
    return;
  }
  ::close(descriptor_);
  throw Error(ErrorKind::kInput, fmt::format("{} is {}, not a file", path_text(path),
                                             S_ISDIR(info.st_mode) ? "a folder" : "a pipe or device"));
}

OpenFile::~OpenFile() {
  ::close(descriptor_);
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const OpenFile file(path);
  if (file.size() == 0) return;
  void* data = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (data == MAP_FAILED) {
    throw Error(ErrorKind::kCapacity,
                fmt::format("cannot map the {} bytes of {}: {}", file.size(), path_text(path), errno_text(errno)));
  }
  data_ = static_cast<const std::byte*>(data);
  size_ = file.size();
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  path_ = std::move(other.path_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void MappedFile::leave_memory() const {
  if (!data_) return;
  // Pages that are mapped in stay, so they go first. What fails here only leaves less memory to others.
  ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
  try {
    const OpenFile file(path_);
    ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  } catch (const Error&) {
  }
}

MappedFile::~MappedFile() {
  unmap();
}

void MappedFile::unmap() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace vireo
