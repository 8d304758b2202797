// SHA-256 (FIPS 180-4), to recognise files by the hash that was published for them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vireo {

// 64 lowercase hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace vireo
