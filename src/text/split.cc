// One function per alternative of the pattern; each returns the end of its match, or `at` for none.
// SPDX-License-Identifier: Apache-2.0
#include "text/split.h"

#include "text/unicode.h"
#include "text/utf8.h"

namespace vireo {
namespace {

constexpr char32_t kLongS = 0x17F;  // case-folds to 's'
constexpr char32_t kEnd = 0xFFFFFFFF;

struct Char {
  char32_t code = kEnd;
  size_t end = 0;
  CharClass kind = CharClass::kOther;
  bool is_newline() const { return code == '\r' || code == '\n'; }
  // Neither whitespace, letter nor number; false past the end.
  bool is_mark() const { return kind == CharClass::kOther && code != kEnd; }
};

Char char_at(std::string_view text, size_t at) {
  if (at >= text.size()) return {kEnd, at, CharClass::kOther};
  const Utf8Char next = next_utf8(text, at);
  return {next.code, at + next.length, char_class(next.code)};
}

char32_t fold(char32_t code) {
  if (code == kLongS) return 's';
  return code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
}

size_t letters_end(std::string_view text, size_t at) {
  for (;;) {
    const Char next = char_at(text, at);
    if (next.kind != CharClass::kLetter) return at;
    at = next.end;
  }
}

size_t newlines_end(std::string_view text, size_t at) {
  while (at < text.size() && (text[at] == '\r' || text[at] == '\n')) ++at;
  return at;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)
size_t match_contraction(std::string_view text, size_t at) {
  if (text[at] != '\'') return at;
  const Char first = char_at(text, at + 1);
  const char32_t a = fold(first.code);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return first.end;
  const Char second = char_at(text, first.end);
  const char32_t b = fold(second.code);
  const bool pair = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
  return pair ? second.end : at;
}

// [^\r\n\p{L}\p{N}]?\p{L}+
size_t match_word(std::string_view text, size_t at, const Char& first) {
  if (first.kind == CharClass::kLetter) return letters_end(text, first.end);
  if (first.is_newline() || first.kind == CharClass::kNumber) return at;
  const size_t end = letters_end(text, first.end);
  return end > first.end ? end : at;
}

//  ?[^\s\p{L}\p{N}]+[\r\n]*
size_t match_marks(std::string_view text, size_t at, const Char& first) {
  const size_t begin = first.code == ' ' ? first.end : at;
  size_t end = begin;
  for (Char next = char_at(text, end); next.is_mark(); next = char_at(text, end)) end = next.end;
  return end > begin ? newlines_end(text, end) : at;
}

// \s*[\r\n]+|\s+(?!\S)|\s+
size_t match_spaces(std::string_view text, size_t at) {
  size_t end = at, last = at, after_newline = at;
  for (Char next = char_at(text, end); next.kind == CharClass::kSpace; next = char_at(text, end)) {
    last = end;
    end = next.end;
    if (next.is_newline()) after_newline = end;
  }
  if (after_newline > at) return after_newline;
  return end < text.size() && last > at ? last : end;
}

}  // namespace

size_t split_end(std::string_view text, size_t begin) {
  const Char first = char_at(text, begin);
  if (const size_t end = match_contraction(text, begin); end > begin) return end;
  if (const size_t end = match_word(text, begin, first); end > begin) return end;
  if (first.kind == CharClass::kNumber) return first.end;
  if (const size_t end = match_marks(text, begin, first); end > begin) return end;
  return match_spaces(text, begin);
}

}  // namespace vireo
