// Every field that would change ids or text must have the value that the code has built in.
// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_check.h"
#include "files/quote.h"

#include <fmt/format.h>

#include <initializer_list>

#include "text/split.h"
#include "vireo/error.h"

namespace vireo {
namespace {

struct Expected {
  const char* key;
  Json value;
  bool may_be_absent = false;  // absent, null and "" mean the same
};

bool means_nothing(const Json* value) {
  return value == nullptr || value->is_null() || (value->is_string() && value->get_ref<const std::string&>().empty());
}

class Checker {
 public:
  explicit Checker(const TokenizerFile& file) : file_(file) {}

  const Json& section(const Json& parent, const char* key) const {
    const auto it = parent.find(key);
    if (it == parent.end() || !it->is_object()) {
      throw Error(ErrorKind::kInput, fmt::format("{}: \"{}\" is missing or not an object", file_.name, key));
    }
    return *it;
  }

  void expect(const Json& object, const std::string& where, std::initializer_list<Expected> fields) const {
    for (const Expected& field : fields) {
      const auto it = object.find(field.key);
      const Json* value = it == object.end() ? nullptr : &*it;
      if (field.may_be_absent && means_nothing(value)) continue;
      if (value == nullptr || *value != field.value) differs(where + "." + field.key, value, field.value);
    }
  }

  void model() const {
    const Json& model = section(file_.rest, "model");
    for (const char* table : {"vocab", "merges"}) {
      if (!model.contains(table)) {
        throw Error(ErrorKind::kInput, fmt::format("{}: model.{} is missing", file_.name, table));
      }
    }
    expect(model, "model",
           {{"type", "BPE"},
            {"dropout", nullptr, true},
            {"unk_token", nullptr, true},
            {"continuing_subword_prefix", nullptr, true},
            {"end_of_word_suffix", nullptr, true},
            {"byte_fallback", false, true},
            {"ignore_merges", false, true}});
  }

  void pre_tokenizer() const {
    const Json& sequence = section(file_.rest, "pre_tokenizer");
    expect(sequence, "pre_tokenizer", {{"type", "Sequence"}});
    const auto steps = sequence.find("pretokenizers");
    if (steps == sequence.end() || !steps->is_array() || steps->size() != 2 || !(*steps)[0].is_object() ||
        !(*steps)[1].is_object()) {
      throw Error(ErrorKind::kInput,
                  fmt::format("{}: pre_tokenizer.pretokenizers is not a Split and a ByteLevel", file_.name));
    }
    expect(
        (*steps)[0], "pre_tokenizer.pretokenizers[0]",
        {{"type", "Split"}, {"pattern", Json{{"Regex", kSplitPattern}}}, {"behavior", "Isolated"}, {"invert", false}});
    expect((*steps)[1], "pre_tokenizer.pretokenizers[1]",
           {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  }

  void post_processor() const {
    const auto it = file_.rest.find("post_processor");
    if (it == file_.rest.end() || it->is_null()) return;
    expect(section(file_.rest, "post_processor"), "post_processor", {{"type", "ByteLevel"}});
  }

  void all() const {
    model();
    expect(section(file_.rest, "normalizer"), "normalizer", {{"type", "NFC"}});
    pre_tokenizer();
    post_processor();
    expect(section(file_.rest, "decoder"), "decoder", {{"type", "ByteLevel"}});
  }

 private:
  [[noreturn]] void differs(const std::string& where, const Json* value, const Json& expected) const {
    const std::string found = value == nullptr ? "missing" : in_quotes(value->dump());
    throw Error(ErrorKind::kInput,
                fmt::format("{}: {} is {}, but only {} is implemented: this is not a tokenizer of the "
                            "Qwen2 and Qwen3 family",
                            file_.name, where, found, expected.dump()));
  }

  const TokenizerFile& file_;
};

}  // namespace

void check_pipeline(const TokenizerFile& file) {
  if (!file.rest.is_object()) throw Error(ErrorKind::kInput, fmt::format("{}: not a JSON object", file.name));
  Checker(file).all();
}

}  // namespace vireo
