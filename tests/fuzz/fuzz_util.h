// What the fuzz targets share: the one promise that all of them test (untrusted bytes give a value or an Error whose
// sentence can be shown, nothing else), and bytes as files.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vireo/error.h"

namespace vireo::fuzz {

inline std::string_view as_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Reports a broken promise to libFuzzer.
inline void require(bool condition, const char* promise) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

inline void require_showable(const std::string& sentence) {
  require(!sentence.empty(), "an error says something");
  require(sentence.size() <= 4096, "an error is a sentence, not a copy of the input");
  for (const char c : sentence) require(c == '\n' || static_cast<unsigned char>(c) >= 0x20, "an error has no control");
}

// Whether `action` succeeds; any exception but Error ends the run.
template <typename Action>
bool accepts(Action&& action) {
  try {
    action();
    return true;
  } catch (const Error& error) {
    require_showable(error.what());
    return false;
  }
}

// The parts of an input that stands for several files; always `count`, the last one with whatever follows.
inline std::vector<std::string_view> split(std::string_view input, std::string_view mark, size_t count) {
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < count) {
    const size_t at = input.find(mark);
    parts.push_back(input.substr(0, at));
    input = at == input.npos ? std::string_view() : input.substr(at + mark.size());
  }
  parts.push_back(input);
  return parts;
}

// A file in memory that can be opened by path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    require(descriptor_ >= 0, "memfd_create works");
    require(::write(descriptor_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "write works");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// A folder for one process, in memory where the system has such a place.
class Folder {
 public:
  Folder() {
    const bool has_shm = ::access("/dev/shm", W_OK) == 0;
    std::string name = has_shm ? "/dev/shm/vireo-fuzz-XXXXXX" : "/tmp/vireo-fuzz-XXXXXX";
    require(::mkdtemp(name.data()) != nullptr, "mkdtemp works");
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

  // An empty part means that there is no such file.
  void put(const char* name, std::string_view bytes) const {
    if (bytes.empty()) {
      std::error_code ignored;
      std::filesystem::remove(path_ / name, ignored);
    } else {
      std::ofstream(path_ / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
  }

 private:
  std::filesystem::path path_;
};

}  // namespace vireo::fuzz
