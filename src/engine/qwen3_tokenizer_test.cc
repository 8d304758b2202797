// The packed tokenizer against the official files of the test data.
// SPDX-License-Identifier: Apache-2.0
#include "engine/qwen3_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "files/json.h"
#include "files/test_files.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace vireo {
namespace {

constexpr char kOfficial[] = VIREO_TEST_DATA "/qwen3-tokenizer/tokenizer.json";
constexpr size_t kMaxBytes = 64u << 20;

nlohmann::json official(const char* name) {
  return nlohmann::json::parse(read_file(std::string(VIREO_TEST_DATA "/qwen3-tokenizer/") + name, kMaxBytes));
}

TEST(Qwen3Tokenizer, IsTheOfficialFileAsJson) {
  const auto want = official("tokenizer.json"), got = nlohmann::json::parse(qwen3_tokenizer_json());
  EXPECT_EQ(got["model"]["vocab"].size(), 151643u);
  EXPECT_EQ(got["model"]["merges"].size(), 151387u);
  EXPECT_TRUE(got == want);
}

TEST(Qwen3Tokenizer, ConfigIsTheOfficialOneButForLengthAndTemplate) {
  auto want = official("tokenizer_config.json"), got = nlohmann::json::parse(qwen3_tokenizer_config_json());
  EXPECT_EQ(got["model_max_length"], 262144);
  EXPECT_EQ(got["chat_template"], std::string(qwen3_vl_instruct_template()));
  for (const char* key : {"model_max_length", "chat_template"}) {
    got.erase(key);
    want.erase(key);
  }
  EXPECT_EQ(got, want);
}

TEST(Qwen3Tokenizer, TokensAndIdsAreTheOfficialOnes) {
  const TempFolder folder;
  const Tokenizer got = Tokenizer::load(folder.write("tokenizer.json", qwen3_tokenizer_json()));
  const Tokenizer want = Tokenizer::load(kOfficial);
  ASSERT_EQ(got.size(), 151669);
  ASSERT_EQ(want.size(), 151669);
  for (int32_t id = 0; id < want.size(); ++id) {
    ASSERT_EQ(got.bytes(id, false), want.bytes(id, false)) << id;
    ASSERT_EQ(got.bytes(id, true), want.bytes(id, true)) << id;
  }
  const Json golden = read_json(VIREO_TEST_DATA "/goldens/tokenizer.json");
  ASSERT_EQ(golden["texts"].size(), 445u);
  for (size_t i = 0; i < golden["texts"].size(); ++i) {
    const auto ids = golden["qwen3"][i].get<std::vector<int32_t>>();
    ASSERT_EQ(got.encode(golden["texts"][i].get<std::string>(), Tokenizer::Added::kAll), ids) << i;
    ASSERT_EQ(got.decode(ids, false), golden["qwen3_decoded"][i].get<std::string>()) << i;
  }
}

TEST(Qwen3Tokenizer, TemplateIsKnown) {
  const TempFolder folder;
  folder.write("tokenizer_config.json", qwen3_tokenizer_config_json());
  const ChatTemplate chat = ChatTemplate::load(folder.path());
  EXPECT_EQ(chat.style(), ChatTemplate::Style::kInstruct);
  EXPECT_EQ(chat.note(), "");
}

}  // namespace
}  // namespace vireo
