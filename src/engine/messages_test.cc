// Chat messages in the forms of Hugging Face and OpenAI, and every bad shape with its sentence.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "files/test_files.h"
#include "vireo/vireo.h"

namespace vireo {
namespace {

using Kind = Part::Kind;

Request parse(const std::string& json) {
  return parse_messages(json, "/pictures");
}

// The one part of one user message.
Part part_of(const std::string& part) {
  const Request request = parse(R"([{"role": "user", "content": [)" + part + "]}]");
  EXPECT_EQ(request.messages.size(), 1u);
  EXPECT_EQ(request.messages[0].content.size(), 1u);
  return request.messages[0].content[0];
}

std::string refusal(const std::string& json) {
  return error_of([&] { parse(json); });
}

std::string part_refusal(const std::string& part) {
  return refusal(R"([{"role": "user", "content": [{"type": "text", "text": "a"}, )" + part + "]}]");
}

std::string bytes_of(const Picture& picture) {
  return {reinterpret_cast<const char*>(picture.bytes.data()), picture.bytes.size()};
}

TEST(Messages, AListAndAnObjectMeanTheSame) {
  for (const char* json :
       {R"([{"role": "user", "content": "Hi"}])", R"({"messages": [{"role": "user", "content": "Hi"}]})"}) {
    const Request request = parse(json);
    ASSERT_EQ(request.messages.size(), 1u) << json;
    EXPECT_EQ(request.messages[0].role, "user");
    ASSERT_EQ(request.messages[0].content.size(), 1u);
    EXPECT_EQ(request.messages[0].content[0].kind, Kind::kText);
    EXPECT_EQ(request.messages[0].content[0].text, "Hi");
    EXPECT_EQ(request.max_new_tokens, 256);
    EXPECT_EQ(request.tools, "");
  }
}

TEST(Messages, ToolsAndLimitOfAnObject) {
  const Request request =
      parse(R"({"messages": [], "tools": [{"type": "function", "function": {"name": "f"}}], "max_new_tokens": 7})");
  EXPECT_EQ(request.tools, R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(request.max_new_tokens, 7);
  EXPECT_EQ(parse(R"({"messages": [], "tools": null})").tools, "");
}

TEST(Messages, RolesCallsAndThoughts) {
  const Request request = parse(R"([
    {"role": "developer", "content": "Be short."},
    {"role": "assistant", "content": null, "reasoning_content": "Hm.",
     "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "content": ["4", {"text": "2"}]}])");
  ASSERT_EQ(request.messages.size(), 3u);
  EXPECT_EQ(request.messages[0].role, "system");
  EXPECT_EQ(request.messages[1].content.size(), 0u);
  EXPECT_EQ(request.messages[1].reasoning, "Hm.");
  EXPECT_EQ(request.messages[1].tool_calls, R"([{"function":{"name":"f","arguments":"{}"}}])");
  ASSERT_EQ(request.messages[2].content.size(), 2u);
  EXPECT_EQ(request.messages[2].content[0].text, "4");
  EXPECT_EQ(request.messages[2].content[1].text, "2");
  EXPECT_EQ(request.messages[2].reasoning, std::nullopt);
}

TEST(Messages, PicturePathsAreRelativeToTheFolder) {
  EXPECT_EQ(part_of(R"({"type": "image", "image": "a/b.png"})").image.path, "/pictures/a/b.png");
  EXPECT_EQ(part_of(R"({"type": "image", "image": "/x/b.png"})").image.path, "/x/b.png");
  EXPECT_EQ(part_of(R"({"type": "image", "image": "file:///x/b.png"})").image.path, "/x/b.png");
  EXPECT_EQ(part_of(R"({"type": "image", "image_path": "b.png"})").image.path, "/pictures/b.png");
  EXPECT_EQ(part_of(R"({"type": "image_url", "image_url": "b.png"})").image.path, "/pictures/b.png");
  EXPECT_EQ(part_of(R"({"type": "image_url", "image_url": {"url": "b.png", "detail": "low"}})").image.path,
            "/pictures/b.png");
}

TEST(Messages, DataUrisAreDecoded) {
  const Part part = part_of(R"({"type": "image_url", "image_url": {"url": "data:image/png;base64,Zm9v\nYmFy"}})");
  EXPECT_EQ(part.kind, Kind::kImage);
  EXPECT_TRUE(part.image.path.empty());
  EXPECT_EQ(bytes_of(part.image), "foobar");
}

TEST(Messages, NullKeysAreAbsentKeys) {
  const Part text = part_of(R"({"type": "text", "text": "Hi", "image": null, "video": null})");
  EXPECT_EQ(text.kind, Kind::kText);
  EXPECT_EQ(text.text, "Hi");
  const Part image = part_of(R"({"type": "image", "text": null, "image": "b.png"})");
  EXPECT_EQ(image.kind, Kind::kImage);
}

TEST(Messages, VideosAreFramesOrAGif) {
  const Part frames = part_of(R"({"type": "video", "video": ["0.png", "data:;base64,Zg==", "/2.png"], "fps": 2.5})");
  EXPECT_EQ(frames.kind, Kind::kVideo);
  ASSERT_EQ(frames.video.frames.size(), 3u);
  EXPECT_EQ(frames.video.frames[0].path, "/pictures/0.png");
  EXPECT_EQ(bytes_of(frames.video.frames[1]), "f");
  EXPECT_EQ(frames.video.frames[2].path, "/2.png");
  EXPECT_EQ(frames.video.fps, 2.5);
  EXPECT_FALSE(frames.video.sample);
  EXPECT_FALSE(frames.video.gif);
  const Part gif = part_of(R"({"type": "video_url", "video_url": {"url": "a.gif"}, "do_sample_frames": true})");
  ASSERT_TRUE(gif.video.gif);
  EXPECT_EQ(gif.video.gif->path, "/pictures/a.gif");
  EXPECT_TRUE(gif.video.sample);
  EXPECT_EQ(gif.video.fps, 0);
}

TEST(Messages, BadDocumentsAreRefused) {
  EXPECT_EQ(refusal("3"), "kInput: messages is number, not a list of chat messages");
  EXPECT_EQ(refusal(R"({"message": []})"), "kInput: the JSON object has no key \"messages\"");
  EXPECT_EQ(refusal(R"({"messages": "Hi"})"), "kInput: messages is string, not a list of chat messages");
  EXPECT_EQ(refusal(R"([["Hi"]])"), "kInput: messages[0] is array, not an object with role and content");
  EXPECT_EQ(refusal(R"([{"content": "Hi"}])"), "kInput: messages[0] has no role: use system, user, assistant or tool");
  EXPECT_EQ(refusal(R"([{"role": 1, "content": "Hi"}])"), "kInput: messages[0].role is number, not a string");
  EXPECT_EQ(refusal(R"([{"role": "user", "content": 4}])"),
            "kInput: messages[0].content is number: use a string or a list of parts");
  EXPECT_NE(refusal(R"([{"role": "user")").find("kInput: messages"), std::string::npos);
  EXPECT_NE(refusal(R"({"messages": [], "max_new_tokens": 0})").find("max_new_tokens"), std::string::npos);
}

TEST(Messages, BadPartsAreRefusedWithTheirPlace) {
  const std::string at = "kInput: messages[0].content[1]";
  EXPECT_EQ(part_refusal("5"), at + R"( is number: use {"type": "text" | "image" | "video", ...})");
  EXPECT_EQ(part_refusal(R"({"type": "input_audio", "input_audio": {}})"),
            at + " is of type 'input_audio' and has none of the keys text, image, image_url, video");
  EXPECT_EQ(part_refusal("{}"), at + " has none of the keys text, image, image_url, video");
  EXPECT_EQ(part_refusal(R"({"text": 5})"), at + ".text is number, not a string");
  EXPECT_EQ(part_refusal(R"({"image": 5})"), at + ".image is number, not a string");
  EXPECT_EQ(part_refusal(R"({"image": ""})"), at + ".image is empty: give a path or a data: URI");
  EXPECT_EQ(part_refusal(R"({"image_url": {"detail": "low"}})"), at + ".image_url has no url");
  EXPECT_EQ(part_refusal(R"({"video": ["a.png"], "fps": -1})"),
            at + ".video has fps -1: use a positive number of frames per second");
  EXPECT_EQ(part_refusal(R"({"video": ["a.png", 7]})"), at + ".video[1] is number, not a string");
}

TEST(Messages, NothingIsFetchedAndBadDataUrisAreRefused) {
  const std::string at = "kInput: messages[0].content[1].image_url.url ";
  EXPECT_EQ(part_refusal(R"({"image_url": {"url": "https://example.com/a.png"}})"),
            at + "is a web address, and nothing is ever fetched: save the picture and give its path, or send a data: "
                 "URI");
  const std::string form = at + "is a data: URI that is not of the form data:image/png;base64,...";
  EXPECT_EQ(part_refusal(R"({"image_url": {"url": "data:image/png,abc"}})"), form);
  EXPECT_EQ(part_refusal(R"({"image_url": {"url": "data:image/png;base64"}})"), form);
  EXPECT_EQ(part_refusal(R"({"image_url": {"url": "data:image/png;base64,Z*"}})"),
            at + "holds a character that is not base64");
}

}  // namespace
}  // namespace vireo
