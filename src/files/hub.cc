// See hub.h. The cache's layout: models--ORG--NAME/{blobs, refs, snapshots}; refs/REV holds a commit,
// snapshots/COMMIT the files as links into blobs, and a download in progress is blobs/HASH.incomplete.
// SPDX-License-Identifier: Apache-2.0
#include "files/hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "files/json.h"
#include "files/quote.h"
#include "vireo/error.h"

namespace vireo {
namespace {

namespace fs = std::filesystem;

struct HubName {
  std::string org;
  std::string name;
  std::string revision;  // empty when not given

  std::string download_command() const {
    return fmt::format("`hf download {}/{}{}`", org, name, revision.empty() ? "" : " --revision " + revision);
  }
};

// Letters, digits, '.', '_' and '-', not starting with '.' or '-'.
bool is_plain(std::string_view part) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !part.empty() && part.size() <= 128 && part[0] != '.' && part[0] != '-' &&
         part.find_first_not_of(kLetters) == std::string_view::npos;
}

bool is_revision(std::string_view text) {
  for (size_t slash; (slash = text.find('/')) != std::string_view::npos; text.remove_prefix(slash + 1)) {
    if (!is_plain(text.substr(0, slash))) return false;
  }
  return is_plain(text);
}

std::optional<HubName> parse_hub_name(std::string_view text) {
  const size_t at = text.find('@');
  const std::string_view repository = text.substr(0, at);
  const size_t slash = repository.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  HubName hub{std::string(repository.substr(0, slash)), std::string(repository.substr(slash + 1)), ""};
  if (at != std::string_view::npos) hub.revision = text.substr(at + 1);
  const bool valid =
      is_plain(hub.org) && is_plain(hub.name) && (at == std::string_view::npos || is_revision(hub.revision));
  return valid ? std::optional(hub) : std::nullopt;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Sorted names in a folder; none when it cannot be read.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// " (2 unfinished downloads, the first: PATH)" or nothing.
std::string unfinished(const fs::path& folder) {
  std::vector<std::string> names = names_in(folder);
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".incomplete"); });
  if (names.empty()) return "";
  return fmt::format(" ({} unfinished download{}, the first: {})", names.size(), names.size() == 1 ? "" : "s",
                     path_text(folder / names[0]));
}

// A folder to check, where its unfinished downloads would lie, and the command that completes it.
struct Snapshot {
  fs::path folder;
  fs::path downloads;
  std::string command;
};

[[noreturn]] void fail_incomplete(const Snapshot& snapshot, const std::string& cause) {
  throw Error(ErrorKind::kInput,
              fmt::format("the checkpoint {} is incomplete: {}{}; run {} to complete it", path_text(snapshot.folder),
                          cause, unfinished(snapshot.downloads), snapshot.command));
}

bool is_needed(const fs::path& file) {
  const fs::path extension = file.extension();
  return extension == ".json" || extension == ".safetensors" || extension == ".jinja";
}

void check_links(const Snapshot& snapshot) {
  for (const std::string& name : names_in(snapshot.folder)) {
    std::error_code ignored;
    const fs::path path = snapshot.folder / name;
    if (!is_needed(path) || !fs::is_symlink(path, ignored) || is_there(path)) continue;
    const fs::path target = fs::read_symlink(path, ignored);
    fail_incomplete(snapshot, fmt::format("{} links to {}, which is missing", path_text(name), path_text(target)));
  }
}

void check_shards(const Snapshot& snapshot) {
  const Json index = read_json(snapshot.folder / "model.safetensors.index.json");
  const Json* weight_map = find_key(index, "weight_map");
  if (!weight_map || !weight_map->is_object()) return;
  std::set<std::string> shards;
  for (const Json& shard : *weight_map) {
    if (shard.is_string()) shards.insert(shard.get_ref<const std::string&>());
  }
  for (const std::string& shard : shards) {
    if (!is_there(snapshot.folder / shard)) fail_incomplete(snapshot, in_quotes(shard) + " is missing");
  }
}

fs::path check_complete(const Snapshot& snapshot) {
  check_links(snapshot);
  if (!is_there(snapshot.folder / "config.json")) fail_incomplete(snapshot, "config.json is missing");
  if (is_there(snapshot.folder / "model.safetensors")) return snapshot.folder;
  if (!is_there(snapshot.folder / "model.safetensors.index.json")) {
    fail_incomplete(snapshot, "neither model.safetensors nor model.safetensors.index.json is there");
  }
  check_shards(snapshot);
  return snapshot.folder;
}

fs::path plain_folder(const fs::path& folder) {
  return check_complete({folder, folder / ".cache" / "huggingface" / "download", "`hf download ORG/NAME`"});
}

[[noreturn]] void fail_not_cached(const HubName& hub, const fs::path& repository, const std::string& cause) {
  std::string text =
      fmt::format("{}/{} is neither a folder nor in the Hugging Face cache: {}", hub.org, hub.name, cause);
  const std::vector<std::string> cached = names_in(repository / "snapshots");
  if (!cached.empty()) text += fmt::format(" (cached: {}/{}@{})", hub.org, hub.name, printable(cached[0]));
  throw Error(ErrorKind::kNotFound, fmt::format("{}; run {}", text, hub.download_command()));
}

// The commit of a revision: what refs/REV says, or REV itself.
std::string commit_of(const HubName& hub, const fs::path& repository) {
  std::string revision = hub.revision.empty() ? "main" : hub.revision;
  const fs::path ref = repository / "refs" / revision;
  std::error_code ignored;
  if (!fs::is_regular_file(ref, ignored)) return revision;
  std::string commit = read_file(ref, 4096);
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r' || commit.back() == ' ')) commit.pop_back();
  if (is_plain(commit)) return commit;
  throw Error(ErrorKind::kInput, fmt::format("{} holds {}, which is no commit; run {} again", path_text(ref),
                                             in_quotes(commit), hub.download_command()));
}

fs::path cached_folder(const HubName& hub, const HubCache& cache) {
  const fs::path repository = cache.folder / fmt::format("models--{}--{}", hub.org, hub.name);
  if (!is_folder(repository)) fail_not_cached(hub, repository, fmt::format("{} does not exist", path_text(repository)));
  const fs::path snapshot = repository / "snapshots" / commit_of(hub, repository);
  if (!is_folder(snapshot)) {
    fail_not_cached(hub, repository,
                    fmt::format("{} does not exist{}", path_text(snapshot), unfinished(repository / "blobs")));
  }
  return check_complete({snapshot, repository / "blobs", hub.download_command()});
}

fs::path folder_of_file(const fs::path& file) {
  if (file.extension() != ".safetensors") {
    throw Error(
        ErrorKind::kInput,
        fmt::format("{} is a file, but a checkpoint is a folder or a .safetensors file in one", path_text(file)));
  }
  return plain_folder(file.has_parent_path() ? file.parent_path() : fs::path("."));
}

}  // namespace

fs::path resolve_checkpoint(const std::string& name, const HubCache& cache) {
  if (name.empty() || name.find('\0') != std::string::npos) {
    throw Error(ErrorKind::kInput,
                fmt::format("the checkpoint {} is no name; give a folder or ORG/NAME", in_quotes(name)));
  }
  if (is_folder(name)) return plain_folder(name);
  if (is_there(name)) return folder_of_file(name);
  if (const auto hub = parse_hub_name(name)) return cached_folder(*hub, cache);
  throw Error(ErrorKind::kNotFound,
              fmt::format("the checkpoint {} is not there: it is no folder, no .safetensors file and no ORG/NAME[@REV] "
                          "to look up in the Hugging Face cache {}",
                          in_quotes(name), path_text(cache.folder)));
}

}  // namespace vireo
