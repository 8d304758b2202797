// From what a user types after --checkpoint to a folder: an existing folder, a .safetensors file's folder, or
// ORG/NAME[@REV] in the local Hugging Face cache. Nothing is ever downloaded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace vireo {

// Where the cache is and how it may be used; front ends fill it from the environment (HF_HUB_CACHE, else
// HF_HOME/hub, else XDG_CACHE_HOME or ~/.cache + /huggingface/hub).
struct HubCache {
  std::filesystem::path folder;
};

// Throws Error(kNotFound) with the `hf download ORG/NAME` line to run when a hub name is not in the cache,
// and Error(kInput) naming the cause when the snapshot is incomplete (.incomplete blobs, dangling links,
// missing files).
std::filesystem::path resolve_checkpoint(const std::string& name, const HubCache& cache);

}  // namespace vireo
