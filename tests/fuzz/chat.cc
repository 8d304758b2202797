// Conversations made of the input, in all three styles: what anybody typed must never become a special token.
// Covers: src/text/chat_instruct.cc src/text/chat_plain.cc src/text/chat_thinking.cc src/text/chat_writer.cc
// SPDX-License-Identifier: Apache-2.0
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>

#include "fuzz_util.h"
#include "text/chat_template.h"

using namespace vireo;
using Style = ChatTemplate::Style;

namespace {

constexpr size_t kMaxText = 64;

// Half of the texts are chosen, because chance finds tags slowly.
std::string text_of(FuzzedDataProvider& input) {
  constexpr const char* kTexts[] = {"<think>",
                                    "</think>",
                                    "<|im_start|>",
                                    "<|im_end|>",
                                    "<|image_pad|>",
                                    "<tool_response>",
                                    "</tool_response>",
                                    "\n",
                                    "<think>\na\n</think>\n\nb",
                                    ""};
  std::string text;
  for (int n = input.ConsumeIntegralInRange<int>(0, 4); n > 0; --n) {
    text += input.ConsumeBool() ? input.PickValueInArray(kTexts) : input.ConsumeRandomLengthString(kMaxText);
  }
  return text;
}

Json json_of(FuzzedDataProvider& input) {
  const std::string text = input.ConsumeRandomLengthString(kMaxText);
  Json json = text;
  if (input.ConsumeBool()) fuzz::accepts([&] { json = parse_json(text, "tool"); });
  return json;
}

ChatMessage message_of(FuzzedDataProvider& input) {
  constexpr const char* kRoles[] = {"system", "user", "assistant", "tool"};
  constexpr ChatPart::Kind kKinds[] = {ChatPart::Kind::kText, ChatPart::Kind::kImage, ChatPart::Kind::kVideo};
  ChatMessage message;
  message.role = input.PickValueInArray(kRoles);
  for (int n = input.ConsumeIntegralInRange<int>(0, 3); n > 0; --n) {
    const ChatPart::Kind kind = input.PickValueInArray(kKinds);
    message.content.push_back({kind, kind == ChatPart::Kind::kText ? text_of(input) : ""});
  }
  for (int n = input.ConsumeIntegralInRange<int>(0, 2); n > 0; --n) {
    message.tool_calls.push_back({text_of(input), json_of(input)});
  }
  if (input.ConsumeBool()) message.reasoning = text_of(input);
  return message;
}

int64_t count_special(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  return std::count_if(ids.begin(), ids.end(), [&](int32_t id) {
    return !tokenizer.bytes(id, false).empty() && tokenizer.bytes(id, true).empty();
  });
}

void check_pieces(const Tokenizer& tokenizer, const std::vector<PromptPiece>& pieces) {
  std::vector<Tokenizer::Piece> texts;
  int64_t of_template = 0;
  for (const PromptPiece& piece : pieces) {
    if (piece.kind != PromptPiece::Kind::kText) continue;
    texts.push_back(piece.text);
    if (piece.text.added != Tokenizer::Added::kAll) continue;
    of_template += count_special(tokenizer, tokenizer.encode(piece.text.text, Tokenizer::Added::kAll));
  }
  fuzz::require(count_special(tokenizer, tokenizer.encode(texts)) == of_template,
                "only the template writes special tokens");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Tokenizer tokenizer = Tokenizer::load(VIREO_SOURCE_DIR "/models/tiny/tokenizer.json");
  FuzzedDataProvider input(data, size);
  ChatOptions options;
  options.add_generation_prompt = input.ConsumeBool();
  options.add_vision_id = input.ConsumeBool();
  for (int n = input.ConsumeIntegralInRange<int>(0, 2); n > 0; --n) options.tools.push_back(json_of(input));
  std::vector<ChatMessage> messages;
  for (int n = input.ConsumeIntegralInRange<int>(1, 6); n > 0; --n) messages.push_back(message_of(input));
  for (const Style style : {Style::kInstruct, Style::kThinking, Style::kPlain}) {
    fuzz::accepts([&] { check_pieces(tokenizer, ChatTemplate(style).render(messages, options)); });
  }
  return 0;
}
