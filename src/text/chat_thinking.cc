// The template of the Qwen3-VL Thinking models: thoughts of turns before the last question are dropped, later
// ones are kept, and the answer begins inside a thought.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "text/chat_writer.h"

namespace vireo {
namespace {

using Media = ChatWriter::Media;

constexpr std::string_view kThink = "<think>", kEndThink = "</think>";

struct Place {
  size_t piece, at;
};

// The first or the last `tag`; pieces.size() when there is none. Neighbouring text of one provenance is one
// piece, so a tag lies in a single piece.
Place find_first(const PromptPieces& pieces, std::string_view tag) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (const size_t at = pieces[i].text.text.find(tag); at != std::string::npos) return {i, at};
  }
  return {pieces.size(), 0};
}

Place find_last(const PromptPieces& pieces, std::string_view tag) {
  for (size_t i = pieces.size(); i-- > 0;) {
    if (const size_t at = pieces[i].text.text.rfind(tag); at != std::string::npos) return {i, at};
  }
  return {pieces.size(), 0};
}

PromptPieces before(PromptPieces pieces, Place place) {
  pieces[place.piece].text.text.resize(place.at);
  pieces.resize(place.piece + 1);
  return pieces;
}

PromptPieces after(PromptPieces pieces, Place place, size_t skip) {
  pieces[place.piece].text.text.erase(0, place.at + skip);
  pieces.erase(pieces.begin(), pieces.begin() + static_cast<ptrdiff_t>(place.piece));
  return pieces;
}

bool all_stripped(const PromptPiece& piece) {
  return piece.kind == PromptPiece::Kind::kText && piece.text.text.empty();
}

void strip_left(PromptPieces& pieces) {
  while (!pieces.empty()) {
    std::string& text = pieces.front().text.text;
    text.erase(0, std::min(text.find_first_not_of('\n'), text.size()));
    if (!all_stripped(pieces.front())) return;
    pieces.erase(pieces.begin());
  }
}

void strip_right(PromptPieces& pieces) {
  while (!pieces.empty()) {
    std::string& text = pieces.back().text.text;
    text.resize(text.find_last_not_of('\n') + 1);
    if (!all_stripped(pieces.back())) return;
    pieces.pop_back();
  }
}

struct Turn {
  PromptPieces thought, answer;
};

Turn split_turn(const ChatMessage& message, PromptPieces content) {
  if (message.reasoning) {
    Turn turn{{}, std::move(content)};
    append_text(turn.thought, *message.reasoning, Tokenizer::Added::kNonSpecial);
    return turn;
  }
  const Place end = find_first(content, kEndThink);
  if (end.piece == content.size()) return {{}, std::move(content)};
  Turn turn{before(content, end), after(content, find_last(content, kEndThink), kEndThink.size())};
  strip_right(turn.thought);
  const Place begin = find_last(turn.thought, kThink);
  if (begin.piece < turn.thought.size()) turn.thought = after(std::move(turn.thought), begin, kThink.size());
  strip_left(turn.thought);
  strip_left(turn.answer);
  return turn;
}

// A result that a client sends as a user message is no question.
bool is_question(const ChatMessage& message) {
  if (message.role != "user") return false;
  std::string text;
  for (const ChatPart& part : message.content)
    text += part.kind == ChatPart::Kind::kText ? part.text : "<|vision_start|>";
  const std::string_view begin = "<tool_response>", end = "</tool_response>";
  return !(std::string_view(text).starts_with(begin) && std::string_view(text).ends_with(end));
}

size_t last_question(const std::vector<ChatMessage>& messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    if (is_question(messages[i])) return i;
  }
  return messages.size() - 1;
}

void assistant(ChatWriter& writer, const ChatMessage& message, size_t i, bool is_current, bool is_last) {
  Turn turn = split_turn(message, writer.content(i, Media::kRendered));
  const bool has_answer = !turn.answer.empty();
  writer.open("assistant");
  if (is_current && (is_last || !turn.thought.empty())) {
    strip_left(turn.thought);
    strip_right(turn.thought);
    strip_left(turn.answer);
    writer.literal("<think>\n");
    writer.append(turn.thought);
    writer.literal("\n</think>\n\n");
  }
  writer.append(turn.answer);
  writer.tool_calls(i, has_answer);
  writer.close();
}

void turn_of(ChatWriter& writer, const ChatMessage& message, size_t i) {
  writer.open(message.role);
  writer.append(writer.content(i, Media::kRendered));
  writer.close();
}

}  // namespace

PromptPieces render_thinking(const std::vector<ChatMessage>& messages, const ChatOptions& options) {
  ChatWriter writer(messages, options);
  writer.system_block(Media::kRendered);
  const size_t question = last_question(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool is_later_system = i > 0 && writer.has_role(i, "system");
    if (writer.has_role(i, "user") || is_later_system) turn_of(writer, messages[i], i);
    if (writer.has_role(i, "assistant")) assistant(writer, messages[i], i, i > question, i + 1 == messages.size());
    if (writer.has_role(i, "tool")) writer.tool_message(i);
  }
  if (options.add_generation_prompt) writer.literal("<|im_start|>assistant\n<think>\n");
  return writer.take();
}

}  // namespace vireo
