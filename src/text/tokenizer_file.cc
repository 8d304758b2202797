// Reads by events, because a document tree of the official 11 MB file takes several times as long, at every start.
// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_file.h"

#include <fmt/format.h>

#include <utility>

#include "files/quote.h"
#include "vireo/error.h"

namespace vireo {
namespace {

constexpr size_t kMaxFileBytes = 64u << 20;
constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxValues = 500'000;  // outside the two tables
constexpr size_t kMaxKeys = 256;        // of one object outside them; duplicates are looked for one by one

class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Reader(TokenizerFile& file) : file_(file) {}

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_float(double value, const std::string&) override { return scalar(value); }
  bool number_integer(int64_t value) override { return scalar(value); }
  bool number_unsigned(uint64_t value) override;
  bool string(std::string& value) override;
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(size_t) override;
  bool key(std::string& key) override;
  bool end_object() override { return close(); }
  bool start_array(size_t) override;
  bool end_array() override;
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    std::string_view reason = error.what();
    if (const size_t end = reason.find("] "); end != reason.npos) reason.remove_prefix(end + 2);
    fail(printable(reason, 240));
  }

 private:
  enum class Where { kRest, kVocab, kMerges, kPair };

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kInput, fmt::format("{}: {}", file_.name, what));
  }
  [[noreturn]] void fail_in_table() const;
  void refuse_in_tables() const;
  bool at_table(const char* name) const;
  bool scalar(Json value);
  void add(Json value);
  void open(Json container);
  bool close();
  TokenizerFile::Span keep(std::string_view text);
  void add_merge_line(std::string_view line);

  TokenizerFile& file_;
  Where where_ = Where::kRest;
  std::vector<Json*> open_;        // containers of `rest`, outermost first
  std::vector<std::string> keys_;  // the last key in each; empty in arrays
  std::string token_;              // the last key of model.vocab
  std::vector<TokenizerFile::Span> pair_;
  size_t values_ = 0;
};

void Reader::fail_in_table() const {
  if (where_ == Where::kVocab) {
    fail(fmt::format("model.vocab[{}] is not an integer from 0 to {}", in_quotes(token_), kMaxTokens - 1));
  }
  fail(fmt::format("model.merges[{}] is neither \"left right\" nor [\"left\", \"right\"]", file_.merges.size()));
}

bool Reader::at_table(const char* name) const {
  return where_ == Where::kRest && keys_.size() == 2 && keys_[0] == "model" && keys_[1] == name;
}

// For values that are neither a table nor an entry of one.
void Reader::refuse_in_tables() const {
  if (at_table("vocab")) fail("model.vocab is not an object");
  if (at_table("merges")) fail("model.merges is not a list");
  if (where_ != Where::kRest) fail_in_table();
}

void Reader::add(Json value) {
  if (++values_ > kMaxValues) fail(fmt::format("more than {} values outside of the vocabulary", kMaxValues));
  if (open_.empty()) {
    file_.rest = std::move(value);
  } else if (open_.back()->is_array()) {
    open_.back()->push_back(std::move(value));
  } else {
    (*open_.back())[keys_.back()] = std::move(value);
  }
}

bool Reader::scalar(Json value) {
  refuse_in_tables();
  add(std::move(value));
  return true;
}

void Reader::open(Json container) {
  refuse_in_tables();
  if (open_.size() == kMaxDepth) fail(fmt::format("nested more than {} deep", kMaxDepth));
  add(std::move(container));
  Json* parent = open_.empty() ? nullptr : open_.back();
  Json* opened = parent == nullptr ? &file_.rest : parent->is_array() ? &parent->back() : &(*parent)[keys_.back()];
  open_.push_back(opened);
  keys_.emplace_back();
}

bool Reader::close() {
  if (std::exchange(where_, Where::kRest) != Where::kRest) return true;
  open_.pop_back();
  keys_.pop_back();
  return true;
}

TokenizerFile::Span Reader::keep(std::string_view text) {
  const auto at = static_cast<uint32_t>(file_.text.size());
  file_.text += text;
  return {at, static_cast<uint32_t>(text.size())};
}

bool Reader::number_unsigned(uint64_t value) {
  if (where_ != Where::kVocab) return scalar(value);
  if (value >= static_cast<uint64_t>(kMaxTokens)) fail_in_table();
  file_.vocab.push_back({keep(token_), static_cast<int32_t>(value)});
  return true;
}

void Reader::add_merge_line(std::string_view line) {
  const size_t space = line.find(' ');
  const bool two_words =
      space != line.npos && space > 0 && space + 1 < line.size() && line.find(' ', space + 1) == line.npos;
  if (!two_words) fail_in_table();
  const auto left = keep(line.substr(0, space));
  file_.merges.push_back({left, keep(line.substr(space + 1))});
}

bool Reader::string(std::string& value) {
  if (where_ == Where::kMerges) {
    add_merge_line(value);
  } else if (where_ == Where::kPair) {
    pair_.push_back(keep(value));
  } else {
    scalar(std::move(value));
  }
  return true;
}

bool Reader::start_object(size_t) {
  if (at_table("vocab")) {
    add(nullptr);
    where_ = Where::kVocab;
  } else {
    open(Json::object());
  }
  return true;
}

bool Reader::key(std::string& key) {
  if (where_ == Where::kVocab) {
    token_.swap(key);
    return true;
  }
  const Json& object = *open_.back();
  if (object.contains(key)) fail(fmt::format("key {} is given twice", in_quotes(key)));
  if (object.size() == kMaxKeys)
    fail(fmt::format("an object outside of the vocabulary has more than {} keys", kMaxKeys));
  keys_.back().swap(key);
  return true;
}

bool Reader::start_array(size_t) {
  if (where_ == Where::kMerges) {
    where_ = Where::kPair;
    pair_.clear();
  } else if (at_table("merges")) {
    add(nullptr);
    where_ = Where::kMerges;
  } else {
    open(Json::array());
  }
  return true;
}

bool Reader::end_array() {
  if (where_ != Where::kPair) return close();
  where_ = Where::kMerges;
  if (pair_.size() != 2) fail_in_table();
  file_.merges.push_back({pair_[0], pair_[1]});
  return true;
}

}  // namespace

TokenizerFile read_tokenizer_file(const std::filesystem::path& path) {
  TokenizerFile file;
  file.name = path_text(path);
  const std::string bytes = read_file(path, kMaxFileBytes);
  file.text.reserve(bytes.size() / 2);
  Reader reader(file);
  nlohmann::json::sax_parse(bytes.data(), bytes.data() + bytes.size(), &reader);
  return file;
}

}  // namespace vireo
