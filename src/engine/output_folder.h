// Folders that a command writes: beside their place, and renamed when they are whole, so that a folder of that name is never a part of
// one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace vireo {

// As a path that has a name and a parent, with symbolic links resolved. Throws Error(kUsage) for an empty one.
std::filesystem::path output_path(const std::filesystem::path& folder);

// Throws Error(kCapacity) with both numbers.
void check_space(const std::filesystem::path& folder, uint64_t need);

// Whether a folder that is not empty may be replaced.
using MayReplace = std::function<bool(const std::filesystem::path& folder)>;
// Throws Error(kUsage) for what is there already, but an empty folder and one that may be replaced; `command` is who asks.
void check_replaceable(const std::filesystem::path& path, const char* command, const MayReplace& may_replace);

// The folder under another name, NAME.partial, until keep() is called; removed again when it is not.
class PartialFolder {
 public:
  // Removes what is there under that name, where check_replaceable() lets it.
  PartialFolder(const std::filesystem::path& final_path, const char* command, const MayReplace& may_replace);
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder();

  const std::filesystem::path& path() const { return path_; }
  // In the place of what is there.
  void keep();

 private:
  std::filesystem::path final_, path_;
  bool kept_ = false;
};

// Runs `write`; what the file system refuses becomes Error(kInput) naming the path.
void write_output(const std::function<void()>& write);

}  // namespace vireo
