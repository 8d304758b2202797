// Lookup in the generated two-stage table.
// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.h"

#include <iterator>

namespace vireo {
namespace {
#include "text/unicode_table.inc"
}  // namespace

CharClass char_class(char32_t code) {
  const uint32_t block = static_cast<uint32_t>(code) / kBlockSize;
  if (block >= std::size(kBlockOf)) return CharClass::kOther;
  const uint32_t in_block = static_cast<uint32_t>(code) % kBlockSize;
  const uint64_t word = kBlocks[kBlockOf[block] * (kBlockSize / 32) + in_block / 32];
  return static_cast<CharClass>((word >> (2 * (in_block % 32))) & 3);
}

const char* unicode_version() {
  return kUnicodeVersion;
}

}  // namespace vireo
