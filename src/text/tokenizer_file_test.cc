// Files that are not what they should be: every refusal names the file and the thing.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "files/json.h"
#include "files/test_files.h"
#include "text/split.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace vireo {
namespace {

using Added = Tokenizer::Added;
using Ids = std::vector<int32_t>;

// 256 byte tokens, "ab" = 256, "abc" = 257, and two added tokens.
Json small_file() {
  Json vocab = Json::object();
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    std::string symbol;
    append_utf8(symbol, itself ? static_cast<char32_t>(b) : next++);
    vocab[symbol] = b;
  }
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  Json file;
  file["added_tokens"] = {{{"id", 258}, {"content", "<a>"}, {"special", true}},
                          {{"id", 259}, {"content", "<a><b>"}, {"special", false}, {"lstrip", false}}};
  file["normalizer"] = {{"type", "NFC"}};
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", kSplitPattern}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  file["post_processor"] = nullptr;
  file["decoder"] = {{"type", "ByteLevel"}};
  file["model"] = {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab c"}}};
  return file;
}

class TokenizerFileTest : public testing::Test {
 protected:
  Tokenizer load(const std::string& text) const { return Tokenizer::load(folder_.write("tokenizer.json", text)); }
  Tokenizer load(const Json& file) const { return load(file.dump()); }
  std::string refusal(const std::string& text) const {
    return error_of([&] { load(text); });
  }
  // What is said about the small file after a change to it.
  std::string refusal(const std::function<void(Json&)>& change) const {
    Json file = small_file();
    change(file);
    return refusal(file.dump());
  }
  void expect_refused(const std::function<void(Json&)>& change, const std::string& thing) const {
    const std::string sentence = refusal(change);
    EXPECT_PRED2(contains, sentence, "kInput: ");
    EXPECT_PRED2(contains, sentence, "tokenizer.json");
    EXPECT_PRED2(contains, sentence, thing);
  }

  TempFolder folder_;
};

TEST_F(TokenizerFileTest, SmallFileWorks) {
  const Tokenizer tokenizer = load(small_file());
  EXPECT_EQ(tokenizer.encode("abcab", Added::kNone), Ids({257, 256}));
  EXPECT_EQ(tokenizer.encode("<a><b><a>", Added::kAll), Ids({259, 258}));
  EXPECT_EQ(tokenizer.size(), 260);
}

TEST_F(TokenizerFileTest, LongestAllowedAddedToken) {
  const Tokenizer tokenizer = load(small_file());
  EXPECT_EQ(tokenizer.encode("<a><b>", Added::kNonSpecial), Ids({259}));
  EXPECT_EQ(tokenizer.encode("<a>", Added::kNonSpecial), Ids({'<', 'a', '>'}));
  EXPECT_EQ(tokenizer.encode("<a><c>", Added::kAll), Ids({258, '<', 'c', '>'}));
}

TEST_F(TokenizerFileTest, MergesAsPairsMeanTheSame) {
  Json file = small_file();
  file["model"]["merges"] = Json::parse(R"([["a", "b"], ["ab", "c"]])");
  EXPECT_EQ(load(file).encode("abcab", Added::kNone), Ids({257, 256}));
}

TEST_F(TokenizerFileTest, OrderOfSectionsDoesNotMatter) {
  Json file;
  const Json small = small_file();
  file["model"] = {{"merges", small["model"]["merges"]}, {"vocab", small["model"]["vocab"]}, {"type", "BPE"}};
  for (const auto& [key, value] : small.items()) file[key] = key == "model" ? file[key] : value;
  EXPECT_EQ(load(file).encode("abc", Added::kNone), Ids({257}));
}

TEST_F(TokenizerFileTest, AddedTokenMayBeAVocabularyEntry) {
  Json file = small_file();
  file["model"]["vocab"]["<a>"] = 258;
  EXPECT_EQ(load(file).encode("<a>", Added::kAll), Ids({258}));
  EXPECT_EQ(load(file).encode("<a>", Added::kNone), Ids({'<', 'a', '>'}));
}

TEST_F(TokenizerFileTest, MissingFile) {
  EXPECT_ERROR(Tokenizer::load(folder_.path() / "no.json"), "kNotFound: ", "no.json");
}

TEST_F(TokenizerFileTest, NotJson) {
  for (const char* text : {"", "{", "[1,", "{\"model\": {\"vocab\": {\"a\": 1", "nonsense", "{} x", "\xFF"}) {
    EXPECT_PRED2(contains, refusal(text), "kInput: ") << text;
    EXPECT_PRED2(contains, refusal(text), "tokenizer.json") << text;
  }
  EXPECT_PRED2(contains, refusal("[]"), "not a JSON object");
  EXPECT_PRED2(contains, refusal("{}"), "\"model\" is missing");
}

TEST_F(TokenizerFileTest, HostileShapes) {
  EXPECT_PRED2(contains, refusal(std::string(100'000, '[')), "nested more than 16 deep");
  EXPECT_PRED2(contains, refusal("{\"model\": 1, \"model\": 2}"), "'model' is given twice");
  std::string many = "{";
  for (int i = 0; i < 300; ++i) many += fmt::format("\"{}\":0,", i);
  EXPECT_PRED2(contains, refusal(many + "\"x\":0}"), "more than 256 keys");
  std::string list = "{\"x\":[0";
  for (int i = 0; i < 600'000; ++i) list += ",0";
  EXPECT_PRED2(contains, refusal(list + "]}"), "more than 500000 values");
}

TEST_F(TokenizerFileTest, Ids) {
  for (const Json& id : {Json(-3), Json(1 << 20), Json(4e9), Json("7"), Json(nullptr), Json(1.5), Json::array()}) {
    expect_refused([&](Json& f) { f["model"]["vocab"]["ab"] = id; },
                   "model.vocab['ab'] is not an integer from 0 to 1048575");
  }
  expect_refused([](Json& f) { f["model"]["vocab"]["ab"] = 257; }, "the id 257 twice");
  expect_refused([](Json& f) { f["added_tokens"][0]["id"] = 257; }, "added_tokens[0] ('<a>') has the id 257");
  expect_refused([](Json& f) { f["added_tokens"][1]["id"] = 258; }, "added_tokens[1] ('<a><b>') has the id 258");
  expect_refused([](Json& f) { f["added_tokens"][0]["id"] = -1; }, "'id' is -1");
  expect_refused([](Json& f) { f["added_tokens"][0].erase("id"); }, "added_tokens[0]");
}

TEST_F(TokenizerFileTest, TwiceTheSameToken) {
  std::string text = small_file().dump();
  text.replace(text.find("\"abc\":257"), 9, "\"ab\":257");
  EXPECT_PRED2(contains, refusal(text), "model.vocab has the token 'ab' twice");
  expect_refused([](Json& f) { f["added_tokens"][1]["content"] = "<a>"; }, "added_tokens[1] repeats the token '<a>'");
}

TEST_F(TokenizerFileTest, AddedTokens) {
  expect_refused([](Json& f) { f["added_tokens"][0]["content"] = ""; }, "added_tokens[0].content is empty");
  expect_refused([](Json& f) { f["added_tokens"][0]["content"] = std::string(513, 'x'); }, "513 bytes");
  expect_refused([](Json& f) { f["added_tokens"][0]["content"] = 5; }, "added_tokens[0]");
  expect_refused([](Json& f) { f["added_tokens"][1]["lstrip"] = true; }, "added_tokens[1].lstrip is true");
  expect_refused([](Json& f) { f["added_tokens"][1]["single_word"] = true; }, "single_word is true");
  expect_refused([](Json& f) { f["added_tokens"][1] = 3; }, "added_tokens[1] is not an object");
  expect_refused([](Json& f) { f["added_tokens"] = 3; }, "added_tokens is not a list");
}

TEST_F(TokenizerFileTest, Merges) {
  expect_refused([](Json& f) { f["model"]["merges"].push_back("a q"); }, "model.merges[2] needs the token 'aq'");
  expect_refused([](Json& f) { f["model"]["merges"].push_back({"abx", "c"}); }, "model.merges[2]");
  for (const Json& merge : {Json("ab"), Json("a b c"), Json(" b"), Json("a "), Json(5), Json({"a"}),
                            Json({"a", "b", "c"}), Json({"a", 1}), Json::object()}) {
    expect_refused([&](Json& f) { f["model"]["merges"].push_back(merge); }, "model.merges[2] is neither");
  }
  expect_refused([](Json& f) { f["model"]["merges"] = Json::object(); }, "model.merges is not a list");
  expect_refused([](Json& f) { f["model"]["merges"] = nullptr; }, "model.merges is not a list");
  expect_refused([](Json& f) { f["model"].erase("merges"); }, "model.merges is missing");
  expect_refused([](Json& f) { f["model"]["vocab"] = Json::array(); }, "model.vocab is not an object");
  expect_refused([](Json& f) { f["model"].erase("vocab"); }, "model.vocab is missing");
  expect_refused([](Json& f) { f["model"]["vocab"].erase("!"); }, "no token for the byte 33");
}

TEST_F(TokenizerFileTest, OtherPipelines) {
  expect_refused([](Json& f) { f["model"]["type"] = "Unigram"; }, "model.type is '\"Unigram\"'");
  expect_refused([](Json& f) { f["model"].erase("type"); }, "model.type is missing");
  expect_refused([](Json& f) { f["model"]["ignore_merges"] = true; }, "model.ignore_merges");
  expect_refused([](Json& f) { f["model"]["byte_fallback"] = true; }, "model.byte_fallback");
  expect_refused([](Json& f) { f["model"]["dropout"] = 0.1; }, "model.dropout");
  expect_refused([](Json& f) { f["model"]["continuing_subword_prefix"] = "##"; }, "model.continuing_subword_prefix");
  expect_refused([](Json& f) { f["normalizer"]["type"] = "NFKC"; }, "normalizer.type");
  expect_refused([](Json& f) { f["normalizer"] = nullptr; }, "\"normalizer\" is missing");
  expect_refused([](Json& f) { f["pre_tokenizer"]["type"] = "Whitespace"; }, "pre_tokenizer.type");
  expect_refused([](Json& f) { f["pre_tokenizer"]["pretokenizers"].erase(1); }, "not a Split and a ByteLevel");
  expect_refused([](Json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\s+"; },
                 "pre_tokenizer.pretokenizers[0].pattern is '{\"Regex\":\"\\\\s+\"}'");
  expect_refused([](Json& f) { f["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; },
                 "add_prefix_space");
  expect_refused([](Json& f) { f["post_processor"] = {{"type", "TemplateProcessing"}}; }, "post_processor.type");
  expect_refused([](Json& f) { f["decoder"]["type"] = "WordPiece"; }, "decoder.type");
}

TEST_F(TokenizerFileTest, CutAnywhereIsRefusedCleanly) {
  const std::string text = small_file().dump();
  for (size_t size = 0; size < text.size(); size += 37) {
    EXPECT_PRED2(contains, refusal(text.substr(0, size)), "kInput: ") << size;
  }
}

}  // namespace
}  // namespace vireo
