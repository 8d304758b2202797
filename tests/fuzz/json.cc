// The JSON reader and Python's way to write, which must be inverse.
// Covers: src/files/json.cc
// SPDX-License-Identifier: Apache-2.0
#include "files/json.h"

#include "fuzz_util.h"

using namespace vireo;

namespace {

void ask(const Json& json, const char* key) {
  fuzz::accepts([&] { get_int(json, key, "x", -5, 5); });
  fuzz::accepts([&] { get_int_or(json, key, "x", 0, 5, 1); });
  fuzz::accepts([&] { get_double_or(json, key, "x", 0.5); });
  fuzz::accepts([&] { get_bool_or(json, key, "x", true); });
  fuzz::accepts([&] { get_string_or(json, key, "x", "y"); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile memory(fuzz::as_text(data, size));
  fuzz::accepts([&] {
    const Json json = read_json(memory.path(), {.bytes = 1u << 16, .depth = 16});
    const std::string text = python_dumps(json);
    fuzz::require(parse_json(text, "again") == json, "what python_dumps writes reads as the same value");
    for (const char* key : {"a", "b", ""}) ask(json, key);
  });
  return 0;
}
