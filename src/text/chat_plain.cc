// The template of small checkpoints: every message wherever it stands, nothing else.
// SPDX-License-Identifier: Apache-2.0
#include "text/chat_writer.h"

namespace vireo {

PromptPieces render_plain(const std::vector<ChatMessage>& messages, const ChatOptions& options) {
  const ChatOptions no_labels{.add_generation_prompt = options.add_generation_prompt};
  ChatWriter writer(messages, no_labels);
  for (size_t i = 0; i < messages.size(); ++i) {
    writer.open(messages[i].role);
    writer.append(writer.content(i, ChatWriter::Media::kRendered));
    writer.close();
  }
  if (options.add_generation_prompt) writer.open("assistant");
  return writer.take();
}

}  // namespace vireo
