// SPDX-License-Identifier: Apache-2.0
#include "engine/image_cache.h"

#include <algorithm>

#include "base/sha256.h"
#include "base/thread_pool.h"

namespace vireo {

std::string media_key(const Patches& p, int threads) {
  constexpr size_t kBlock = size_t{1} << 20;
  const std::string_view pixels(reinterpret_cast<const char*>(p.pixels.data()), p.pixels.size());
  std::vector<std::string> hashes((pixels.size() + kBlock - 1) / kBlock);
  ThreadPool pool(threads_for_items(static_cast<int64_t>(hashes.size()), threads));
  pool.run(static_cast<int64_t>(hashes.size()), [&](int64_t i, int) {
    hashes[static_cast<size_t>(i)] = sha256_hex(pixels.substr(static_cast<size_t>(i) * kBlock, kBlock));
  });
  std::string all(reinterpret_cast<const char*>(&p.grid), sizeof p.grid);
  for (const std::string& hash : hashes) all += hash;
  return sha256_hex(all);
}

uint64_t EncodedMedium::bytes() const {
  const auto size = [](const OwnedTensor& t) { return static_cast<uint64_t>(t.view.size()) * size_of(t.view.dtype); };
  uint64_t total = size(merged);
  for (const OwnedTensor& d : deepstack) total += size(d);
  return total;
}

const EncodedMedium* ImageCache::find(const std::string& key) {
  const auto found = std::find_if(media_.begin(), media_.end(), [&](const EncodedMedium& m) { return m.key == key; });
  if (found == media_.end()) {
    ++misses_;
    return nullptr;
  }
  ++hits_;
  media_.splice(media_.begin(), media_, found);
  return &media_.front();
}

const EncodedMedium& ImageCache::add(EncodedMedium medium) {
  used_ += medium.bytes();
  media_.push_front(std::move(medium));
  while (used_ > budget_ && media_.size() > 1) {
    used_ -= media_.back().bytes();
    media_.pop_back();
  }
  return media_.front();
}

void ImageCache::clear() {
  media_.clear();
  used_ = 0;
}

}  // namespace vireo
