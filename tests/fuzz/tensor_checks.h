// What must hold for tensors that a file was accepted with.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include "base/tensor.h"
#include "fuzz_util.h"

namespace vireo::fuzz {

// Every byte can be read, and the tensors of one file take no more than `most` bytes in all.
inline void check_tensors(std::span<const HostTensor> tensors, uint64_t most) {
  uint64_t total = 0;
  static volatile unsigned sink;
  for (const HostTensor& tensor : tensors) {
    require(!tensor.name.empty(), "a tensor has a name");
    const auto* bytes = reinterpret_cast<const unsigned char*>(tensor.data);
    for (size_t i = 0; i < tensor.bytes(); ++i) sink = sink + bytes[i];
    total += tensor.bytes();
  }
  require(total <= most, "tensors lie inside their file and do not overlap");
}

}  // namespace vireo::fuzz
