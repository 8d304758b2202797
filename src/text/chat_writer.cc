// See the header.
// SPDX-License-Identifier: Apache-2.0
#include "text/chat_writer.h"

#include <fmt/format.h>

namespace vireo {
namespace {

using Added = Tokenizer::Added;

constexpr std::string_view kToolsBegin =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
    "function "
    "signatures within <tools></tools> XML tags:\n<tools>";
constexpr std::string_view kToolsEnd =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
    "<args-json-object>}\n</tool_call>";

}  // namespace

void append_text(PromptPieces& pieces, std::string_view text, Added added) {
  if (text.empty()) return;
  const bool joins =
      !pieces.empty() && pieces.back().kind == PromptPiece::Kind::kText && pieces.back().text.added == added;
  if (!joins) pieces.push_back({PromptPiece::Kind::kText, {"", added}});
  pieces.back().text.text += text;
}

ChatWriter::ChatWriter(const std::vector<ChatMessage>& messages, const ChatOptions& options)
    : messages_(messages), options_(options) {
  MediaCount count;
  for (const ChatMessage& message : messages) {
    before_.push_back(count);
    for (const ChatPart& part : message.content) {
      count.images += part.kind == ChatPart::Kind::kImage;
      count.videos += part.kind == ChatPart::Kind::kVideo;
    }
  }
}

bool ChatWriter::has_role(size_t message, std::string_view role) const {
  return message < messages_.size() && messages_[message].role == role;
}

void ChatWriter::mark(PromptPieces& pieces, PromptPiece::Kind kind, int index) {
  const bool is_image = kind == PromptPiece::Kind::kImage;
  const int number = is_image ? ++rendered_.images : ++rendered_.videos;
  if (options_.add_vision_id) {
    append_text(pieces, fmt::format("{} {}: ", is_image ? "Picture" : "Video", number), Added::kAll);
  }
  if (is_image) append_text(pieces, "<|vision_start|>", Added::kAll);
  pieces.push_back({kind, {}, index});
  if (is_image) append_text(pieces, "<|vision_end|>", Added::kAll);
}

PromptPieces ChatWriter::content(size_t message, Media media) {
  MediaCount next = before_[message];
  const Added added = has_role(message, "assistant") ? Added::kNonSpecial : Added::kNone;
  PromptPieces pieces;
  for (const ChatPart& part : messages_[message].content) {
    if (part.kind == ChatPart::Kind::kText) {
      append_text(pieces, part.text, added);
    } else if (media == Media::kRendered) {
      const bool is_image = part.kind == ChatPart::Kind::kImage;
      mark(pieces, is_image ? PromptPiece::Kind::kImage : PromptPiece::Kind::kVideo,
           is_image ? next.images++ : next.videos++);
    }
  }
  return pieces;
}

void ChatWriter::literal(std::string_view text) {
  append_text(pieces_, text, Added::kAll);
}

void ChatWriter::append(const PromptPieces& pieces) {
  for (const PromptPiece& piece : pieces) {
    if (piece.kind == PromptPiece::Kind::kText) {
      append_text(pieces_, piece.text.text, piece.text.added);
    } else {
      pieces_.push_back(piece);
    }
  }
}

void ChatWriter::open(std::string_view role) {
  literal(fmt::format("<|im_start|>{}\n", role));
}

void ChatWriter::close() {
  literal("<|im_end|>\n");
}

void ChatWriter::tools() {
  literal(kToolsBegin);
  for (const Json& tool : options_.tools) {
    literal("\n");
    append_text(pieces_, python_dumps(tool), Added::kNone);
  }
  literal(kToolsEnd);
}

void ChatWriter::system_block(Media media) {
  const bool has_system = has_role(0, "system"), has_tools = !options_.tools.empty();
  if (!has_system && !has_tools) return;
  open("system");
  if (has_system) append(content(0, media));
  if (has_system && has_tools) literal("\n\n");
  if (has_tools) tools();
  close();
}

void ChatWriter::tool_calls(size_t message, bool after_text) {
  for (const ChatToolCall& call : messages_[message].tool_calls) {
    if (after_text) literal("\n");
    after_text = true;
    literal("<tool_call>\n{\"name\": \"");
    append_text(pieces_, call.name, Added::kNone);
    literal("\", \"arguments\": ");
    const Json& arguments = call.arguments;
    append_text(pieces_, arguments.is_string() ? arguments.get<std::string>() : python_dumps(arguments), Added::kNone);
    literal("}\n</tool_call>");
  }
}

void ChatWriter::tool_message(size_t message) {
  if (message == 0 || !has_role(message - 1, "tool")) literal("<|im_start|>user");
  literal("\n<tool_response>\n");
  append(content(message, Media::kRendered));
  literal("\n</tool_response>");
  if (!has_role(message + 1, "tool")) close();
}

}  // namespace vireo
