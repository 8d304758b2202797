// What the templates share: pieces that keep their provenance, content items, the tools block, calls and tool
// results.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "text/chat_template.h"

namespace vireo {

using PromptPieces = std::vector<PromptPiece>;

// Joins text to a last piece of the same provenance; empty text adds nothing.
void append_text(PromptPieces& pieces, std::string_view text, Tokenizer::Added added);

// Writes one conversation. What the template says may be any added token; what the assistant said, those that
// are not special (thoughts and tool calls of earlier turns become tokens again); everything else is plain
// text.
class ChatWriter {
 public:
  enum class Media { kRendered, kDropped };

  // Both outlive the writer.
  ChatWriter(const std::vector<ChatMessage>& messages, const ChatOptions& options);

  // False past the end.
  bool has_role(size_t message, std::string_view role) const;
  // "Picture N: " counts the images rendered so far, so render each message once and in order.
  PromptPieces content(size_t message, Media media);

  void literal(std::string_view text);
  void append(const PromptPieces& pieces);
  void open(std::string_view role);  // <|im_start|>role\n
  void close();                      // <|im_end|>\n
  // The leading system message, if there is one, and the tools, if there are any.
  void system_block(Media media);
  void tool_calls(size_t message, bool after_text);
  // Neighbouring tool messages share one user turn.
  void tool_message(size_t message);

  PromptPieces take() { return std::move(pieces_); }

 private:
  struct MediaCount {
    int images = 0, videos = 0;
  };
  void mark(PromptPieces& pieces, PromptPiece::Kind kind, int index);
  void tools();

  const std::vector<ChatMessage>& messages_;
  const ChatOptions& options_;
  PromptPieces pieces_;
  std::vector<MediaCount> before_;  // media of the messages before each
  MediaCount rendered_;
};

// One function per template; roles have been checked.
PromptPieces render_instruct(const std::vector<ChatMessage>& messages, const ChatOptions& options);
PromptPieces render_thinking(const std::vector<ChatMessage>& messages, const ChatOptions& options);
PromptPieces render_plain(const std::vector<ChatMessage>& messages, const ChatOptions& options);

}  // namespace vireo
