// Chat messages to the pieces of a prompt. The two published Qwen3-VL templates (Instruct, Thinking) and the
// plain one of small checkpoints are rendered natively, so that what a user typed keeps its provenance and
// can never become a special token.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "files/json.h"
#include "text/tokenizer.h"

namespace vireo {

struct ChatPart {
  enum class Kind { kText, kImage, kVideo };
  Kind kind = Kind::kText;
  std::string text;  // kText only
};

struct ChatToolCall {
  std::string name;
  Json arguments;  // a string is taken verbatim, anything else is dumped as JSON
};

struct ChatMessage {
  std::string role;  // system, user, assistant, tool
  std::vector<ChatPart> content;
  std::vector<ChatToolCall> tool_calls;
  std::optional<std::string> reasoning;  // reasoning_content; only the Thinking template reads it
};

struct ChatOptions {
  std::vector<Json> tools;
  bool add_generation_prompt = true;
  bool add_vision_id = false;
};

// A stretch of the prompt: text with the added tokens it may contain, or the place of an image or video (in
// order of appearance; images and videos are counted separately). A kVideo mark stands for the whole
// <|vision_start|><|video_pad|><|vision_end|>; a kImage mark for the <|image_pad|> between its two brackets,
// which are text pieces of their own.
struct PromptPiece {
  enum class Kind { kText, kImage, kVideo };
  Kind kind = Kind::kText;
  Tokenizer::Piece text;
  // Of this image or video, from 0 over all messages; the numbers of media that the template drops do not
  // appear.
  int index = 0;
};

class ChatTemplate {
 public:
  enum class Style { kInstruct, kThinking, kPlain };

  // Looks for chat_template.jinja, chat_template.json, then tokenizer_config.json's chat_template (a string,
  // or a list of {name, template} with one named "default"), and recognises the style. An unknown template is
  // taken as the nearest style and note() says so; no template at all is kInstruct with a note.
  static ChatTemplate load(const std::filesystem::path& folder);
  explicit ChatTemplate(Style style) : style_(style) {}

  Style style() const { return style_; }
  const char* style_name() const;
  const std::string& note() const { return note_; }  // empty when the template is a known one

  // Throws Error(kInput) for an empty list and for an unknown role, naming it and the message's index; kPlain
  // refuses tools, tool calls and tool messages.
  std::vector<PromptPiece> render(const std::vector<ChatMessage>& messages, const ChatOptions& options) const;

 private:
  Style style_;
  std::string note_;
};

}  // namespace vireo
