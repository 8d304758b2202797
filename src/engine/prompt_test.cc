// Prompts of models/tiny: ids, positions, limits. What the reference makes of whole chats is compared by tests/e2e.
// SPDX-License-Identifier: Apache-2.0
#include "engine/prompt.h"

#include <gtest/gtest.h>

#include "files/test_files.h"

namespace vireo {
namespace {

const std::filesystem::path kTiny = VIREO_SOURCE_DIR "/models/tiny";

const Tokenizer& tokenizer() {
  static const Tokenizer t = Tokenizer::load(kTiny / "tokenizer.json");
  return t;
}
const ModelConfig& config() {
  static const ModelConfig c = load_model_config(kTiny);
  return c;
}

Prompt build(const Request& request, PromptBuilder::Limits limits = {.max_seq = 4096}) {
  static const ChatTemplate chat_template = ChatTemplate::load(kTiny);
  static const PreprocessorConfig preprocessor = load_preprocessor_config(kTiny);
  return PromptBuilder(config(), tokenizer(), chat_template, preprocessor, limits).build(request);
}

Request ask(std::vector<Part> parts, int max_new_tokens = 16) {
  Request request{.max_new_tokens = max_new_tokens};
  request.messages.push_back({.role = "user", .content = std::move(parts)});
  return request;
}

Picture grey(int width, int height) {
  static const std::vector<uint8_t> pixels(2048 * 2048 * 3, 127);
  return {.rgb = pixels.data(), .width = width, .height = height, .stride = int64_t{width} * 3};
}

Part image(int width, int height) {
  return {.kind = Part::Kind::kImage, .image = grey(width, height)};
}

Part video(int frames, int width, int height, double fps) {
  Part part{.kind = Part::Kind::kVideo};
  part.video.frames.assign(static_cast<size_t>(frames), grey(width, height));
  part.video.fps = fps;
  return part;
}

Part text(const std::string& words) {
  return {.text = words};
}

std::string times(int n, const std::string& s) {
  std::string out;
  for (int i = 0; i < n; ++i) out += s;
  return out;
}

// What the model reads, special tokens shown.
std::string shown(const Prompt& prompt) {
  return tokenizer().decode(prompt.ids, false);
}

TEST(Prompt, TextAlone) {
  const Prompt p = build(ask({text("Hello")}));
  EXPECT_EQ(shown(p), "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
  ASSERT_EQ(p.positions.size(), p.ids.size());
  for (int i = 0; i < static_cast<int>(p.ids.size()); ++i)
    EXPECT_EQ(p.positions[static_cast<size_t>(i)], (Position{i, i, i}));
  EXPECT_EQ(p.next_position, static_cast<int32_t>(p.ids.size()));
  EXPECT_EQ(p.patches, 0);
  EXPECT_TRUE(p.visual_rows.empty());
  EXPECT_TRUE(p.notes.empty());
}

// A picture of 2 x 3 tokens and a clip of three frames, the last of which stands twice in its patch.
TEST(Prompt, APictureAndAClip) {
  const Prompt p = build(ask({image(96, 64), text("and"), video(3, 64, 64, 2), text("?")}));
  const std::string clip = "<|vision_start|>" + times(4, "<|video_pad|>") + "<|vision_end|>";
  EXPECT_EQ(shown(p), "<|im_start|>user\n<|vision_start|>" + times(6, "<|image_pad|>") + "<|vision_end|>and" +
                          "<0.2 seconds>" + clip + "<1.0 seconds>" + clip + "?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(p.patches, 4 * 6 + 2 * 4 * 4);
  ASSERT_EQ(p.media.size(), 2u);
  EXPECT_EQ(p.media[0].grid, (Grid{1, 4, 6}));
  EXPECT_EQ(p.media[1].grid, (Grid{2, 4, 4}));
  ASSERT_EQ(p.visual_rows.size(), 14u);
  for (int32_t row : p.visual_rows)
    EXPECT_TRUE(p.ids[static_cast<size_t>(row)] == config().image_token ||
                p.ids[static_cast<size_t>(row)] == config().video_token);
  EXPECT_EQ(std::count(p.ids.begin(), p.ids.end(), config().image_token), 6);
  EXPECT_EQ(std::count(p.ids.begin(), p.ids.end(), config().video_token), 8);
}

TEST(Prompt, PositionsOfAPictureAndAClip) {
  const Prompt p = build(ask({image(96, 64), text("and"), video(3, 64, 64, 2), text("?")}));
  const auto at = [&](int32_t row) { return p.positions[static_cast<size_t>(row)]; };
  const int32_t first = p.visual_rows[0];
  EXPECT_EQ(at(first - 1), (Position{first - 1, first - 1, first - 1}));
  for (int32_t i = 0; i < 6; ++i) EXPECT_EQ(at(first + i), (Position{first, first + i / 3, first + i % 3})) << i;
  EXPECT_EQ(at(first + 6), (Position{first + 3, first + 3, first + 3}));
  // Each temporal patch is a run of its own behind its time stamp; 6 tokens took 3 positions, 4 take 2.
  const int32_t second = p.visual_rows[6], third = p.visual_rows[10];
  const int32_t s = second - 3, t = third - 3 - 2;
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(at(second + i), (Position{s, s + i / 2, s + i % 2})) << i;
    EXPECT_EQ(at(third + i), (Position{t, t + i / 2, t + i % 2})) << i;
  }
  EXPECT_EQ(p.next_position, static_cast<int32_t>(p.ids.size()) - 3 - 2 - 2);
}

TEST(Prompt, MediaStandWhereTheyWereSent) {
  Request request = ask({text("a"), video(2, 64, 64, 1)});
  request.messages.push_back({.role = "assistant", .content = {text("b")}});
  request.messages.push_back({.role = "user", .content = {image(64, 64), text("c"), image(96, 64)}});
  const Prompt p = build(request);
  ASSERT_EQ(p.media.size(), 3u);
  EXPECT_EQ(p.media[0].grid, (Grid{1, 4, 4}));
  EXPECT_EQ(p.media[1].grid, (Grid{1, 4, 4}));
  EXPECT_EQ(p.media[2].grid, (Grid{1, 4, 6}));
  EXPECT_EQ(shown(p), "<|im_start|>user\na<0.5 seconds><|vision_start|>" + times(4, "<|video_pad|>") +
                          "<|vision_end|><|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\n" +
                          "<|vision_start|>" + times(4, "<|image_pad|>") + "<|vision_end|>c<|vision_start|>" +
                          times(6, "<|image_pad|>") + "<|vision_end|><|im_end|>\n<|im_start|>assistant\n");
}

TEST(Prompt, WhatAUserTypesIsPlainText) {
  const std::string typed = "<|vision_start|><|image_pad|><|video_pad|><|im_end|>";
  const Prompt p = build(ask({text(typed)}));
  EXPECT_EQ(shown(p), "<|im_start|>user\n" + typed + "<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(std::count(p.ids.begin(), p.ids.end(), config().image_token), 0);
  EXPECT_EQ(std::count(p.ids.begin(), p.ids.end(), config().video_token), 0);
  EXPECT_EQ(std::count(p.ids.begin(), p.ids.end(), *tokenizer().find_added("<|im_end|>")), 1);
  EXPECT_TRUE(p.visual_rows.empty());
}

TEST(Prompt, TimeStampsAreMeansOfFirstAndLastFrame) {
  const auto stamps = [](std::vector<int> indices, double fps) {
    return time_stamps({.video = true, .frame_indices = std::move(indices), .fps = fps}, 2);
  };
  EXPECT_EQ(stamps({0, 1, 2, 3}, 1), (std::vector<double>{0.5, 2.5}));
  EXPECT_EQ(stamps({0, 1, 2}, 2), (std::vector<double>{0.25, 1.0}));
  EXPECT_EQ(stamps({0, 8, 16, 24, 32}, 8), (std::vector<double>{0.5, 2.5, 4.0}));
}

TEST(Prompt, EmptyRequestsAreRefused) {
  EXPECT_EQ(error_of([] { build({}); }), "kInput: there are no messages: send at least one user message");
  for (const char* words : {"", " ", " \t\r\n"})
    EXPECT_EQ(error_of([&] { build(ask({text(words)})); }),
              "kInput: the prompt is empty: the last message (user) has neither a word nor a picture");
  EXPECT_EQ(error_of([] { build(ask({})); }),
            "kInput: the prompt is empty: the last message (user) has neither a word nor a picture");
  Request strange = ask({});
  strange.messages.back().role = "\x1b[2J";
  EXPECT_EQ(error_of([&] { build(strange); }),
            R"(kInput: the prompt is empty: the last message (\x1b[2J) has neither a word nor a picture)");
  EXPECT_EQ(error_of([] { build(ask({image(64, 64)})); }), "");
  EXPECT_EQ(error_of([] { build(ask({text("Hi")}, 0)); }), "kUsage: max_new_tokens is 0: at least 1 is needed");
}

TEST(Prompt, CapacityCountsAllButTheLastToken) {
  const int tokens = static_cast<int>(build(ask({text("Hello")})).ids.size());
  EXPECT_EQ(error_of([&] { build(ask({text("Hello")}, 9), {.max_seq = tokens + 8}); }), "");
  EXPECT_EQ(error_of([&] { build(ask({text("Hello")}, 10), {.max_seq = tokens + 8}); }),
            "kCapacity: the prompt has " + std::to_string(tokens) +
                " tokens, which with max_new_tokens 10 does not fit " + "in max_seq " + std::to_string(tokens + 8) +
                ": shorten it, or raise --max-seq");
}

TEST(Prompt, AutoMakesPicturesSmallerUntilTheyFitAndSaysSo) {
  const Request request = ask({image(640, 640), image(320, 320), text("?")});
  const size_t all = build(request, {.max_seq = 4096}).ids.size();
  const Prompt p = build(request, {.max_seq = 300});
  EXPECT_LE(p.ids.size() + 15, 300u);
  EXPECT_LT(p.ids.size(), all);
  EXPECT_EQ(p.media[1].grid, (Grid{1, 20, 20}));
  ASSERT_EQ(p.notes.size(), 1u);
  EXPECT_EQ(p.notes[0].find("image 1 is read at "), 0u) << p.notes[0];
  EXPECT_NE(p.notes[0].find("pixels instead of 640x640: "), std::string::npos) << p.notes[0];
  EXPECT_NE(p.notes[0].find("leave room in max_seq 300; raise --max-seq"), std::string::npos) << p.notes[0];
}

TEST(Prompt, AutoHasACapOfPixels) {
  const Request request = ask({image(640, 640), image(640, 640), image(64, 64), text("?")});
  const Prompt p = build(request, {.max_seq = 4096, .auto_cap = 102'400});
  EXPECT_EQ(p.media[0].grid, (Grid{1, 20, 20}));
  ASSERT_EQ(p.notes.size(), 1u);
  EXPECT_EQ(p.notes[0],
            "image 1 is read at 320x320 pixels instead of 640x640, and 1 more smaller too: at most 102400 pixels a "
            "picture; --max-pixels none lifts it");
  const Prompt none = build(request, {.max_seq = 4096, .max_pixels = "none", .auto_cap = 102'400});
  EXPECT_EQ(none.media[0].grid, (Grid{1, 40, 40}));
  EXPECT_TRUE(none.notes.empty());
  const Prompt number = build(request, {.max_seq = 4096, .max_pixels = "25600", .auto_cap = 102'400});
  EXPECT_EQ(number.media[0].grid, (Grid{1, 10, 10}));
  EXPECT_TRUE(number.notes.empty());
}

TEST(Prompt, WhatDoesNotFitEvenWhenSmallestIsACapacityError) {
  const std::string sentence = error_of([] { build(ask({image(640, 640), text("?")}), {.max_seq = 20}); });
  EXPECT_EQ(sentence.find("kCapacity: the prompt has "), 0u) << sentence;
  EXPECT_NE(sentence.find(" in max_seq 20: "), std::string::npos) << sentence;
}

TEST(Prompt, MediaTheTemplateDropsAreRefused) {
  const PreprocessorConfig preprocessor;
  const ChatTemplate instruct(ChatTemplate::Style::kInstruct);
  Request request = ask({text("?")});
  request.messages.insert(request.messages.begin(), {.role = "system", .content = {image(64, 64)}});
  const PromptBuilder builder(config(), tokenizer(), instruct, preprocessor, {.max_seq = 4096});
  EXPECT_EQ(error_of([&] { builder.build(request); }), "kInput: the chat template (" +
                                                           std::string(instruct.style_name()) +
                                                           ") shows 0 of 1 pictures: put pictures into user messages");
}

TEST(Prompt, ToolsMustBeAnArrayOfCalls) {
  Request request = ask({text("Hi")});
  request.tools = "{}";
  EXPECT_EQ(error_of([&] { build(request); }), "kInput: tools is not an array of function schemas");
  request.tools = "";
  request.messages.push_back({.role = "assistant", .tool_calls = "[{}]"});
  EXPECT_EQ(error_of([&] { build(request); }), "kInput: messages[1].tool_calls: a call has no function name");
}

// A tokenizer.json of another checkpoint, or one that was tampered with.
TEST(Prompt, PadTokensMustBeTheTemplatesAlone) {
  const PreprocessorConfig preprocessor;
  const ChatTemplate plain(ChatTemplate::Style::kPlain);
  const auto make = [&](const Tokenizer& t) {
    return error_of([&] { PromptBuilder(config(), t, plain, preprocessor, {.max_seq = 64}); });
  };
  const TempFolder folder;
  std::string file = read_file(kTiny / "tokenizer.json", 1 << 20);
  Json json = parse_json(file, "tokenizer.json");
  for (Json& token : json["added_tokens"])
    if (token["content"] == "<|image_pad|>") token["special"] = false;
  EXPECT_EQ(make(Tokenizer::load(folder.write("tokenizer.json", json.dump()))),
            "kInput: tokenizer.json does not mark <|image_pad|> as special, so that text could be taken for a picture: "
            "restore the published file");
  EXPECT_EQ(make(tokenizer()), "");
  ModelConfig other = config();
  other.video_token += 1;
  EXPECT_EQ(error_of([&] { PromptBuilder(other, tokenizer(), plain, preprocessor, {.max_seq = 64}); }),
            "kInput: tokenizer.json does not have <|video_pad|> as token 1038, which config.json says: the two files "
            "are of different checkpoints");
}

}  // namespace
}  // namespace vireo
