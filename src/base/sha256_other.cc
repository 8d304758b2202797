// SPDX-License-Identifier: Apache-2.0
#include "base/sha256_blocks.h"

namespace vireo {

AddSha256Blocks fast_sha256_blocks() {
  return nullptr;
}

}  // namespace vireo
