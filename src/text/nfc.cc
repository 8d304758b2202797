// Canonical composition. utf8proc's own normaliser sorts combining marks by swapping neighbours, which is
// quadratic in the length of a run of marks, so decomposition and composition are utf8proc's and the sort in
// between is ours.
// SPDX-License-Identifier: Apache-2.0
#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace vireo {
namespace {

constexpr auto kDecompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

struct Mark {
  utf8proc_int32_t code;
  utf8proc_propval_t combining_class;
};

utf8proc_propval_t combining_class(utf8proc_int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

std::vector<utf8proc_int32_t> decompose(std::string_view text) {
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = next_utf8(text, at);
    at += next.length;
    utf8proc_int32_t parts[32];
    int boundclass = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(next.code), parts, std::size(parts),
                                               kDecompose, &boundclass);
    CHECK(count > 0 && count <= static_cast<utf8proc_ssize_t>(std::size(parts)));
    codes.insert(codes.end(), parts, parts + count);
  }
  return codes;
}

void sort_run(utf8proc_int32_t* begin, utf8proc_int32_t* end) {
  std::vector<Mark> marks;
  for (auto* at = begin; at < end; ++at) marks.push_back({*at, combining_class(*at)});
  std::stable_sort(marks.begin(), marks.end(),
                   [](const Mark& a, const Mark& b) { return a.combining_class < b.combining_class; });
  for (const Mark& mark : marks) *begin++ = mark.code;
}

void sort_marks(std::vector<utf8proc_int32_t>& codes) {
  for (size_t at = 0; at < codes.size();) {
    size_t end = at;
    while (end < codes.size() && combining_class(codes[end]) != 0) ++end;
    if (end - at > 1) sort_run(codes.data() + at, codes.data() + end);
    at = end + 1;
  }
}

}  // namespace

bool surely_nfc(std::string_view valid_utf8) {
  return std::none_of(valid_utf8.begin(), valid_utf8.end(),
                      [](char byte) { return static_cast<unsigned char>(byte) >= 0xCC; });
}

std::string to_nfc(std::string_view valid_utf8) {
  std::vector<utf8proc_int32_t> codes = decompose(valid_utf8);
  sort_marks(codes);
  const auto size = utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), kCompose);
  CHECK(size >= 0);
  std::string text;
  text.reserve(valid_utf8.size());
  for (utf8proc_ssize_t i = 0; i < size; ++i) append_utf8(text, static_cast<char32_t>(codes[i]));
  return text;
}

}  // namespace vireo
