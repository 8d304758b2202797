// Encoded pictures and clips by the hash of their patches, so that none goes through the vision tower twice while it is remembered.
// The least recently used ones are forgotten beyond a budget of bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <string>
#include <vector>

#include "image/preprocess.h"
#include "ops/backend.h"

namespace vireo {

// SHA-256 of the grid and of the SHA-256 of each megabyte of the patches; `threads` as image_patches has them.
std::string media_key(const Patches& patches, int threads = 0);

struct EncodedMedium {
  std::string key;
  OwnedTensor merged;  // [tokens, hidden]
  std::vector<OwnedTensor> deepstack;
  uint64_t bytes() const;
};

class ImageCache {
 public:
  explicit ImageCache(uint64_t budget) : budget_(budget) {}
  // Null when it is not remembered. Valid until the next add.
  const EncodedMedium* find(const std::string& key);
  const EncodedMedium& add(EncodedMedium medium);

  void clear();

  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }

 private:
  uint64_t budget_;
  uint64_t used_ = 0;
  int64_t hits_ = 0, misses_ = 0;
  std::list<EncodedMedium> media_;  // most recently used first
};

}  // namespace vireo
