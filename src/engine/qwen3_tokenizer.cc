// The merges determine the vocabulary: 256 byte symbols, then the result of each merge. tools/make_qwen3_merges.py
// describes the packed form.
// SPDX-License-Identifier: Apache-2.0
#include "engine/qwen3_tokenizer.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "base/check.h"
#include "files/json.h"

extern "C" {
extern const unsigned char vireo_qwen3_merges[], vireo_qwen3_merges_end[];
extern const char vireo_qwen3_vl_instruct[], vireo_qwen3_vl_instruct_end[];
}

namespace vireo {
namespace {

constexpr uint32_t kByteSymbols = 256;
constexpr size_t kSpecialTokens = 14;
constexpr std::array<const char*, 26> kAddedTokens = {
    "<|endoftext|>",  "<|im_start|>",   "<|im_end|>",      "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>",  "<|box_end|>",    "<|quad_start|>",  "<|quad_end|>",         "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>",   "<|video_pad|>",        "<tool_call>",
    "</tool_call>",   "<|fim_prefix|>", "<|fim_middle|>",  "<|fim_suffix|>",       "<|fim_pad|>",
    "<|repo_name|>",  "<|file_sep|>",   "<tool_response>", "</tool_response>",     "<think>",
    "</think>"};
constexpr char kSplit[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

using Pair = std::pair<uint32_t, uint32_t>;

uint32_t little_endian(const unsigned char* bytes) {
  return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<uint32_t>(bytes[3]) << 24;
}

uint32_t next_number(const std::vector<unsigned char>& text, size_t& at) {
  uint32_t number = 0;
  for (int shift = 0;; shift += 7) {
    const unsigned char byte = text.at(at++);
    number |= static_cast<uint32_t>(byte & 127) << shift;
    if (byte < 128) return number;
  }
}

std::vector<Pair> unpack_merges() {
  const unsigned char* packed = vireo_qwen3_merges;
  const auto packed_size = static_cast<uLong>(vireo_qwen3_merges_end - packed);
  std::vector<Pair> merges(little_endian(packed));
  std::vector<unsigned char> text(little_endian(packed + 4));
  uLongf size = text.size();
  CHECK(uncompress(text.data(), &size, packed + 8, packed_size - 8) == Z_OK && size == text.size());
  size_t at = 0;
  for (Pair& merge : merges) merge.first = next_number(text, at);
  for (Pair& merge : merges) merge.second = next_number(text, at);
  CHECK(at == text.size());
  return merges;
}

void append_utf8(std::string& text, uint32_t code_point) {
  if (code_point >= 0x80) text += static_cast<char>(0xc0 | code_point >> 6);
  text += static_cast<char>(code_point < 0x80 ? code_point : 0x80 | (code_point & 0x3f));
}

// Bytes 33-126, 161-172 and 174-255 stand for themselves and have the first ids; the others follow from U+0100.
std::vector<std::string> byte_symbols() {
  std::vector<std::string> symbols;
  const auto add = [&](uint32_t first, uint32_t last) {
    for (uint32_t c = first; c <= last; ++c) append_utf8(symbols.emplace_back(), c);
  };
  add(33, 126);
  add(161, 172);
  add(174, 255);
  add(0x100, 0x100 + kByteSymbols - static_cast<uint32_t>(symbols.size()) - 1);
  return symbols;
}

std::vector<std::string> vocabulary(const std::vector<Pair>& merges) {
  std::vector<std::string> tokens = byte_symbols();
  tokens.reserve(kByteSymbols + merges.size());
  for (const auto& [left, right] : merges) tokens.push_back(tokens.at(left) + tokens.at(right));
  return tokens;
}

// Byte symbols hold no control characters.
void append_quoted(std::string& out, std::string_view token) {
  out += '"';
  for (char c : token) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  out += '"';
}

void append_vocabulary(std::string& out, const std::vector<std::string>& tokens) {
  for (size_t id = 0; id < tokens.size(); ++id) {
    out += id == 0 ? "\n" : ",\n";
    append_quoted(out, tokens[id]);
    fmt::format_to(std::back_inserter(out), ":{}", id);
  }
}

void append_merges(std::string& out, const std::vector<Pair>& merges, const std::vector<std::string>& tokens) {
  const char* separator = "\n[";
  for (const auto& [left, right] : merges) {
    out += std::exchange(separator, ",\n[");
    append_quoted(out, tokens[left]);
    out += ',';
    append_quoted(out, tokens[right]);
    out += ']';
  }
}

Json added_token(size_t index) {
  return {{"content", kAddedTokens[index]},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false},
          {"normalized", false},
          {"special", index < kSpecialTokens}};
}

Json added_tokens(size_t first_id) {
  Json list = Json::array();
  for (size_t i = 0; i < kAddedTokens.size(); ++i) {
    Json token = {{"id", first_id + i}};
    token.update(added_token(i));
    list.push_back(token);
  }
  return list;
}

Json byte_level() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
}

// Everything before the model, whose two long tables are written without a JSON tree.
Json envelope(size_t first_added_id) {
  const Json split = {{"type", "Split"}, {"pattern", {{"Regex", kSplit}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens(first_added_id)},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level()}}}},
          {"post_processor", byte_level()},
          {"decoder", byte_level()}};
}

Json model_settings() {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", ""},
          {"end_of_word_suffix", ""},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false}};
}

// The text of an object that goes on.
std::string open_object(const Json& object) {
  std::string text = object.dump();
  text.pop_back();
  return text;
}

}  // namespace

std::string qwen3_tokenizer_json() {
  const std::vector<Pair> merges = unpack_merges();
  const std::vector<std::string> tokens = vocabulary(merges);
  std::string out = open_object(envelope(tokens.size()));
  out += ",\n\"model\":" + open_object(model_settings()) + ",\n\"vocab\":{";
  append_vocabulary(out, tokens);
  out += "},\n\"merges\":[";
  append_merges(out, merges, tokens);
  out += "]}}\n";
  return out;
}

std::string qwen3_tokenizer_config_json() {
  const size_t first_id = kByteSymbols + little_endian(vireo_qwen3_merges);
  Json decoder, special = Json::array();
  for (size_t i = 0; i < kAddedTokens.size(); ++i) {
    decoder[std::to_string(first_id + i)] = added_token(i);
    if (i > 0 && i < kSpecialTokens) special.push_back(kAddedTokens[i]);
  }
  const Json config = {{"add_bos_token", false},
                       {"add_prefix_space", false},
                       {"added_tokens_decoder", decoder},
                       {"additional_special_tokens", special},
                       {"bos_token", nullptr},
                       {"chat_template", qwen3_vl_instruct_template()},
                       {"clean_up_tokenization_spaces", false},
                       {"eos_token", "<|im_end|>"},
                       {"errors", "replace"},
                       {"model_max_length", 262144},
                       {"pad_token", "<|endoftext|>"},
                       {"split_special_tokens", false},
                       {"tokenizer_class", "Qwen2Tokenizer"},
                       {"unk_token", nullptr}};
  return config.dump(2) + "\n";
}

std::string_view qwen3_vl_instruct_template() {
  return {vireo_qwen3_vl_instruct, static_cast<size_t>(vireo_qwen3_vl_instruct_end - vireo_qwen3_vl_instruct)};
}

}  // namespace vireo
