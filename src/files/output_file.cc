// SPDX-License-Identifier: Apache-2.0
#include "files/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "files/quote.h"
#include "vireo/error.h"

namespace vireo {

OutputFile::OutputFile(const std::filesystem::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) check(errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int OutputFile::try_write(uint64_t offset, const void* data, size_t bytes) const {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(descriptor_, at, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    at += written;
    offset += static_cast<uint64_t>(written);
    bytes -= static_cast<size_t>(written);
  }
  return 0;
}

void OutputFile::check(int error) const {
  if (error == 0) return;
  const bool is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw Error(
      is_full ? ErrorKind::kCapacity : ErrorKind::kInput,
      fmt::format("cannot write {}: {}; name another folder with --out", path_text(path_), std::strerror(error)));
}

void OutputFile::close() {
  check(::close(std::exchange(descriptor_, -1)) == 0 ? 0 : errno);
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(0, text);
  file.close();
}

}  // namespace vireo
