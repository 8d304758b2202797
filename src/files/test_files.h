// For tests of this room: a folder that lives as long as a test, bytes into files, and the sentence of a
// thrown Error. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "vireo/error.h"

namespace vireo {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "vireo-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() { std::filesystem::remove_all(path_); }

  const std::filesystem::path& path() const { return path_; }

  // Writes a file, and the folders above it.
  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file;
  }

 private:
  std::filesystem::path path_;
};

// A safetensors file of this header text and data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + data;
}

// "kInput: sentence" as `action` throws it; empty when it throws nothing.
template <typename Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    static constexpr const char* kKinds[] = {
        "kUsage: ", "kInput: ", "kNotFound: ", "kCapacity: ", "kDevice: ", "kCancelled: "};
    return kKinds[static_cast<int>(error.kind())] + std::string(error.what());
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace vireo

// Expects an Error whose "kKind: sentence" holds every given part.
#define EXPECT_ERROR(statement, ...)                                         \
  do {                                                                       \
    const std::string error_text = ::vireo::error_of([&] { statement; });    \
    for (const auto& part : std::initializer_list<std::string>{__VA_ARGS__}) \
      EXPECT_PRED2(::vireo::contains, error_text, part);                     \
  } while (false)
