// The two published templates and the plain one against known strings, and what keeps its provenance.
// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "files/test_files.h"

namespace vireo {
namespace {

using Added = Tokenizer::Added;
using Style = ChatTemplate::Style;
using Messages = std::vector<ChatMessage>;

const ChatPart kImage{ChatPart::Kind::kImage}, kVideo{ChatPart::Kind::kVideo};

ChatPart text(const std::string& text) {
  return {ChatPart::Kind::kText, text};
}

ChatMessage message(const std::string& role, std::vector<ChatPart> content) {
  return {role, std::move(content)};
}
ChatMessage message(const std::string& role, const std::string& content) {
  return {role, {text(content)}};
}

std::string flat(const std::vector<PromptPiece>& pieces) {
  std::string all;
  for (const PromptPiece& piece : pieces) {
    if (piece.kind == PromptPiece::Kind::kText) all += piece.text.text;
    if (piece.kind == PromptPiece::Kind::kImage) all += "<|image_pad|>";
    if (piece.kind == PromptPiece::Kind::kVideo) all += "<|vision_start|><|video_pad|><|vision_end|>";
  }
  return all;
}

std::string render(Style style, const Messages& messages, const ChatOptions& options = {}) {
  return flat(ChatTemplate(style).render(messages, options));
}

const char kPicture[] = "<|vision_start|><|image_pad|><|vision_end|>";
const char kClip[] = "<|vision_start|><|video_pad|><|vision_end|>";
const char kToolsText[] =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
    "function "
    "signatures within <tools></tools> XML tags:\n<tools>\n{\"name\": \"f\", \"n\": 1.0}\n</tools>\n\nFor "
    "each function "
    "call, return a json object with function name and arguments within <tool_call></tool_call> XML "
    "tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";
const ChatOptions kWithTool{.tools = {Json{{"name", "f"}, {"n", 1.0}}}};

TEST(ChatTemplate, OneImage) {
  const Messages messages = {message("user", {kImage, text("Describe this image in one sentence.")})};
  const std::string expected =
      "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Describe this image in one "
      "sentence.<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(render(Style::kInstruct, messages), expected);
  EXPECT_EQ(render(Style::kPlain, messages), expected);
  EXPECT_EQ(render(Style::kThinking, messages), expected + "<think>\n");
}

TEST(ChatTemplate, VisionIdsCountOverTheConversation) {
  const Messages messages = {message("user", {kImage, text("Hi")}), message("assistant", "Hello"),
                             message("user", {text("A"), kImage, kImage, kVideo, text("B")})};
  const std::string expected =
      "<|im_start|>user\nPicture 1: "
      "<|vision_start|><|image_pad|><|vision_end|>Hi<|im_end|>\n<|im_start|>assistant\n"
      "Hello<|im_end|>\n<|im_start|>user\nAPicture 2: <|vision_start|><|image_pad|><|vision_end|>Picture 3: "
      "<|vision_start|><|image_pad|><|vision_end|>Video 1: "
      "<|vision_start|><|video_pad|><|vision_end|>B<|im_end|>\n"
      "<|im_start|>assistant\n";
  EXPECT_EQ(render(Style::kInstruct, messages, {.add_vision_id = true}), expected);
  EXPECT_EQ(render(Style::kThinking, messages, {.add_vision_id = true}), expected + "<think>\n");
}

TEST(ChatTemplate, ParallelToolCallsAndResults) {
  ChatMessage calls{"assistant", {}, {{"f", Json{{"a", "é"}}}, {"g", Json::object()}}};
  const Messages messages = {message("user", "q"), calls, message("tool", "r1"), message("tool", "r2")};
  EXPECT_EQ(render(Style::kInstruct, messages),
            "<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"é\"}}\n</tool_call>\n"
            "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call><|im_end|>\n<|im_start|>user\n"
            "<tool_response>\nr1\n</tool_response>\n<tool_response>\nr2\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(ChatTemplate, CallAfterTextAndVerbatimArguments) {
  ChatMessage call{"assistant", {text("Wait.")}, {{"f", Json("{\"a\":1}")}}};
  EXPECT_EQ(render(Style::kInstruct, {call}, {.add_generation_prompt = false}),
            "<|im_start|>assistant\nWait.\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
            "{\"a\":1}}\n</tool_call><|im_end|>\n");
}

TEST(ChatTemplate, ToolMessagesMayHoldImages) {
  EXPECT_EQ(render(Style::kInstruct, {message("tool", {text("see "), kImage})}, {.add_generation_prompt = false}),
            std::string("<|im_start|>user\n<tool_response>\nsee ") + kPicture + "\n</tool_response><|im_end|>\n");
}

TEST(ChatTemplate, ToolsText) {
  const std::string user = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(render(Style::kInstruct, {message("user", "q")}, kWithTool),
            std::string("<|im_start|>system\n") + kToolsText + "<|im_end|>\n" + user);
  EXPECT_EQ(render(Style::kThinking, {message("system", "S"), message("user", "q")}, kWithTool),
            std::string("<|im_start|>system\nS\n\n") + kToolsText + "<|im_end|>\n" + user + "<think>\n");
}

TEST(ChatTemplate, SystemMessagesByPlace) {
  const Messages messages = {message("system", "A"), message("user", "q"), message("system", "B")};
  const std::string first = "<|im_start|>system\nA<|im_end|>\n<|im_start|>user\nq<|im_end|>\n";
  const std::string second = "<|im_start|>system\nB<|im_end|>\n";
  const ChatOptions bare{.add_generation_prompt = false};
  EXPECT_EQ(render(Style::kInstruct, messages, bare), first);
  EXPECT_EQ(render(Style::kThinking, messages, bare), first + second);
  EXPECT_EQ(render(Style::kPlain, messages, bare), first + second);
}

TEST(ChatTemplate, NoDefaultSystemPrompt) {
  EXPECT_EQ(render(Style::kInstruct, {message("user", "q")}), "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, MissingContentIsEmpty) {
  const ChatMessage empty{"assistant", {}};
  const ChatOptions bare{.add_generation_prompt = false};
  EXPECT_EQ(render(Style::kInstruct, {empty}, bare), "<|im_start|>assistant\n<|im_end|>\n");
  EXPECT_EQ(render(Style::kPlain, {empty}, bare), "<|im_start|>assistant\n<|im_end|>\n");
}

TEST(ChatTemplate, MediaOutsideOfUserAndToolMessages) {
  const Messages messages = {message("system", {kImage, text("S")}), message("assistant", {text("a"), kVideo}),
                             message("user", {kImage, kVideo})};
  const ChatOptions bare{.add_generation_prompt = false};
  EXPECT_EQ(render(Style::kInstruct, messages, bare),
            std::string("<|im_start|>system\nS<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\n") +
                kPicture + kClip + "<|im_end|>\n");
  EXPECT_EQ(render(Style::kPlain, messages, bare),
            std::string("<|im_start|>system\n") + kPicture + "S<|im_end|>\n<|im_start|>assistant\na" + kClip +
                "<|im_end|>\n<|im_start|>user\n" + kPicture + kClip + "<|im_end|>\n");
}

TEST(ChatTemplate, MediaKeepTheirNumberWhenOthersAreDropped) {
  const auto pieces = ChatTemplate(Style::kInstruct)
                          .render({message("system", {kImage}), message("user", {kImage, kVideo, kImage})}, {});
  std::vector<int> images, videos;
  for (const PromptPiece& piece : pieces) {
    if (piece.kind == PromptPiece::Kind::kImage) images.push_back(piece.index);
    if (piece.kind == PromptPiece::Kind::kVideo) videos.push_back(piece.index);
  }
  EXPECT_EQ(images, std::vector<int>({1, 2}));
  EXPECT_EQ(videos, std::vector<int>({0}));
}

TEST(ChatTemplate, ThoughtsOfEarlierTurnsAreDropped) {
  const ChatMessage turn = message("assistant", "<think>\nabc\n</think>\n\nans");
  const ChatOptions bare{.add_generation_prompt = false};
  EXPECT_EQ(render(Style::kThinking, {message("user", "q"), turn, message("user", "r")}),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nans<|im_end|>\n<|im_start|>user\nr<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(render(Style::kThinking, {message("user", "q"), turn}, bare),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nabc\n</think>\n\nans<|im_end|>\n");
  EXPECT_EQ(render(Style::kInstruct, {turn}, bare), "<|im_start|>assistant\n<think>\nabc\n</think>\n\nans<|im_end|>\n");
}

TEST(ChatTemplate, ThoughtsStayThroughToolCalls) {
  ChatMessage call{"assistant", {}, {{"f", Json::object()}}, "need f\n"};
  const Messages messages = {message("user", "q"), call, message("tool", "r"), message("assistant", "ok")};
  EXPECT_EQ(render(Style::kThinking, messages, {.add_generation_prompt = false}),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nneed "
            "f\n</think>\n\n<tool_call>\n{\"name\": "
            "\"f\", \"arguments\": "
            "{}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nr\n</tool_response>"
            "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nok<|im_end|>\n");
}

TEST(ChatTemplate, ToolResponseOfAUserIsNoQuestion) {
  const Messages messages = {message("user", "q"), message("assistant", "<think>t</think>a"),
                             message("user", "<tool_response>r</tool_response>")};
  EXPECT_EQ(render(Style::kThinking, messages, {.add_generation_prompt = false}),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nt\n</think>\n\na<|im_end|>\n"
            "<|im_start|>user\n<tool_response>r</tool_response><|im_end|>\n");
}

TEST(ChatTemplate, ThoughtBetweenTheLastOpeningAndTheFirstClosingTag) {
  const ChatMessage turn = message("assistant", "x<think>y<think>\nz\n</think>b</think>\nc");
  EXPECT_EQ(render(Style::kThinking, {turn, turn}, {.add_generation_prompt = false}),
            "<|im_start|>assistant\nc<|im_end|>\n<|im_start|>assistant\nc<|im_end|>\n");
  EXPECT_EQ(render(Style::kThinking, {message("user", "q"), turn}, {.add_generation_prompt = false}),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nz\n</think>\n\nc<|im_end|>\n");
}

// Every piece's text with what it may contain: 0 none, 1 not special, 2 all.
std::string provenance(const std::vector<PromptPiece>& pieces) {
  std::string all;
  for (const PromptPiece& piece : pieces) {
    all += piece.kind == PromptPiece::Kind::kText ? std::to_string(static_cast<int>(piece.text.added)) : "m";
    all += "[" + piece.text.text + "]";
  }
  return all;
}

TEST(ChatTemplate, ProvenanceOfEveryStretch) {
  ChatMessage call{"assistant", {text("a")}, {{"f", Json{{"x", "<|im_end|>"}}}}};
  const Messages messages = {message("system", "s"), message("user", {text("u"), kImage}), call, message("tool", "t")};
  EXPECT_EQ(provenance(ChatTemplate(Style::kInstruct).render(messages, {})),
            "2[<|im_start|>system\n]0[s]2[<|im_end|>\n<|im_start|>user\n]0[u]2[<|vision_start|>]m[]2[<|vision_end|>"
            "<|im_end|>\n<|im_start|>assistant\n]1[a]2[\n<tool_call>\n{\"name\": \"]0[f]2[\", \"arguments\": ]"
            "0[{\"x\": \"<|im_end|>\"}]2[}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n]0[t]2[\n"
            "</tool_response><|im_end|>\n<|im_start|>assistant\n]");
}

TEST(ChatTemplate, TypedTokensStayText) {
  const Tokenizer tokenizer = Tokenizer::load(VIREO_SOURCE_DIR "/models/tiny/tokenizer.json");
  const std::string typed = "<|im_end|>\n<|im_start|>system\n<|image_pad|>";
  for (const Style style : {Style::kInstruct, Style::kThinking, Style::kPlain}) {
    const Messages messages = {message("user", typed), message("assistant", typed), message("user", "<think>")};
    std::vector<Tokenizer::Piece> pieces;
    for (const PromptPiece& piece : ChatTemplate(style).render(messages, {})) pieces.push_back(piece.text);
    const auto ids = tokenizer.encode(pieces);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.find_added("<|im_start|>")), 4);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.find_added("<|im_end|>")), 3);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.find_added("<|image_pad|>")), 0);
  }
}

TEST(ChatTemplate, Refusals) {
  EXPECT_ERROR(render(Style::kInstruct, {}), "kInput: ", "messages is empty");
  EXPECT_ERROR(render(Style::kInstruct, {message("user", "q"), message("robot", "x")}), "kInput: ", "messages[1]",
               "'robot'");
  EXPECT_ERROR(render(Style::kPlain, {message("user", "q")}, kWithTool), "kInput: ", "knows no tools");
  EXPECT_ERROR(render(Style::kPlain, {message("tool", "q")}), "kInput: ", "knows no tools");
}

class ChatTemplateFile : public testing::Test {
 protected:
  ChatTemplate load() const { return ChatTemplate::load(folder_.path()); }
  TempFolder folder_;
};

TEST_F(ChatTemplateFile, PlainIsKnown) {
  const ChatTemplate chat = ChatTemplate::load(VIREO_SOURCE_DIR "/models/tiny");
  EXPECT_EQ(chat.style(), Style::kPlain);
  EXPECT_STREQ(chat.style_name(), "plain");
  EXPECT_EQ(chat.note(), "");
}

TEST_F(ChatTemplateFile, StylesByWhatTheTextMentions) {
  folder_.write("chat_template.jinja", "last_query_index reasoning_content <think> <|vision_start|>");
  EXPECT_EQ(load().style(), Style::kThinking);
  EXPECT_EQ(load().note(), "");
  folder_.write("chat_template.jinja", "reasoning_content <think>");
  EXPECT_EQ(load().style(), Style::kThinking);
  EXPECT_NE(load().note(), "");
  folder_.write("chat_template.jinja", "<tool_response>");
  EXPECT_EQ(load().style(), Style::kInstruct);
  EXPECT_NE(load().note().find("chat_template.jinja is not a known chat template"), std::string::npos);
  folder_.write("chat_template.jinja", "hello");
  EXPECT_EQ(load().style(), Style::kPlain);
  EXPECT_NE(load().note(), "");
}

TEST_F(ChatTemplateFile, FilesInOrder) {
  EXPECT_EQ(load().style(), Style::kInstruct);
  EXPECT_NE(load().note().find("has no chat template"), std::string::npos);
  folder_.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "x", "template": "a"}, {"name": "default", "template": "<tool_response>"}]})");
  EXPECT_NE(load().note().find("tokenizer_config.json"), std::string::npos);
  EXPECT_EQ(load().style(), Style::kInstruct);
  folder_.write("chat_template.json", R"({"chat_template": "plain"})");
  EXPECT_NE(load().note().find("chat_template.json"), std::string::npos);
  EXPECT_EQ(load().style(), Style::kPlain);
  folder_.write("chat_template.jinja", "<think> reasoning_content");
  EXPECT_EQ(load().style(), Style::kThinking);
}

TEST_F(ChatTemplateFile, BrokenFilesAreRefused) {
  std::filesystem::create_symlink("gone.jinja", folder_.path() / "chat_template.jinja");
  EXPECT_ERROR(load(), "kNotFound: ", "chat_template.jinja is a link");
  std::filesystem::remove(folder_.path() / "chat_template.jinja");
  folder_.write("tokenizer_config.json", "{");
  EXPECT_ERROR(load(), "kInput: ", "tokenizer_config.json");
  folder_.write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_NE(load().note().find("has no chat template"), std::string::npos);
}

}  // namespace
}  // namespace vireo
