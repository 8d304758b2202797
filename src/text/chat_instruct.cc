// The template of the Qwen3-VL Instruct models: media in user and tool messages only, system messages after
// the first message are dropped, and so are separate thoughts.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "text/chat_writer.h"

namespace vireo {
namespace {

using Media = ChatWriter::Media;

// The reference asks for a non-empty string or list; an empty text part is how an empty string arrives here.
bool has_content(const ChatMessage& message) {
  return std::any_of(message.content.begin(), message.content.end(),
                     [](const ChatPart& part) { return part.kind != ChatPart::Kind::kText || !part.text.empty(); });
}

void user(ChatWriter& writer, size_t i) {
  writer.open("user");
  writer.append(writer.content(i, Media::kRendered));
  writer.close();
}

void assistant(ChatWriter& writer, const ChatMessage& message, size_t i) {
  writer.open("assistant");
  writer.append(writer.content(i, Media::kDropped));
  writer.tool_calls(i, has_content(message));
  writer.close();
}

}  // namespace

PromptPieces render_instruct(const std::vector<ChatMessage>& messages, const ChatOptions& options) {
  ChatWriter writer(messages, options);
  writer.system_block(Media::kDropped);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (writer.has_role(i, "user")) user(writer, i);
    if (writer.has_role(i, "assistant")) assistant(writer, messages[i], i);
    if (writer.has_role(i, "tool")) writer.tool_message(i);
  }
  if (options.add_generation_prompt) writer.open("assistant");
  return writer.take();
}

}  // namespace vireo
