// What the operating system tells of this machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace vireo {

// Bytes of memory that may be taken without swapping, the page cache counted as free; nothing where it is not told.
std::optional<uint64_t> available_host_memory();

}  // namespace vireo
