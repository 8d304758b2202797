// SPDX-License-Identifier: Apache-2.0
#include "engine/output_folder.h"

#include <fmt/format.h>

#include "files/quote.h"
#include "vireo/error.h"

namespace vireo {

namespace fs = std::filesystem;

fs::path output_path(const fs::path& folder) {
  if (folder.empty()) throw Error(ErrorKind::kUsage, "--out is empty; name the folder to write");
  const fs::path path = fs::weakly_canonical(fs::absolute(folder));
  return path.has_filename() ? path : path.parent_path();
}

void check_space(const fs::path& folder, uint64_t need) {
  fs::path place = folder;
  while (!fs::exists(place)) place = place.parent_path();
  const uint64_t have = fs::space(place).available;
  if (have >= need) return;
  const auto gb = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  throw Error(ErrorKind::kCapacity, fmt::format("the checkpoint needs {:.2f} GB and the disk of {} has {:.2f} GB free; "
                                                "free some, or name a folder elsewhere with --out",
                                                gb(need), path_text(folder), gb(have)));
}

void check_replaceable(const fs::path& path, const char* command, const MayReplace& may_replace) {
  if (!fs::exists(fs::symlink_status(path))) return;
  if (!fs::is_directory(fs::symlink_status(path))) {
    throw Error(ErrorKind::kUsage, fmt::format("{} is not a folder; name another one with --out", path_text(path)));
  }
  if (fs::is_empty(path) || may_replace(path)) return;
  throw Error(ErrorKind::kUsage, fmt::format("{} holds files that {} may not replace; empty it, or name another folder "
                                             "with --out",
                                             path_text(path), command));
}

PartialFolder::PartialFolder(const fs::path& final_path, const char* command, const MayReplace& may_replace)
    : final_(final_path), path_(final_path.string() + ".partial") {
  check_replaceable(path_, command, may_replace);
  fs::remove_all(path_);
  fs::create_directories(path_);
}

PartialFolder::~PartialFolder() {
  std::error_code ignored;
  if (!kept_) fs::remove_all(path_, ignored);
}

void PartialFolder::keep() {
  fs::remove_all(final_);
  fs::rename(path_, final_);
  kept_ = true;
}

void write_output(const std::function<void()>& write) {
  try {
    write();
  } catch (const fs::filesystem_error& e) {
    throw Error(ErrorKind::kInput, fmt::format("cannot write {}: {}; name another folder with --out",
                                               path_text(e.path1()), e.code().message()));
  }
}

}  // namespace vireo
