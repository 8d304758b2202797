// Finds and recognises a checkpoint's template, and checks a conversation before it is rendered.
// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <fmt/format.h>

#include "base/sha256.h"
#include "files/mapped_file.h"
#include "files/quote.h"
#include "text/chat_writer.h"
#include "vireo/error.h"

namespace vireo {
namespace {

using Style = ChatTemplate::Style;

constexpr size_t kMaxTemplateBytes = 1u << 20;
constexpr char kInstructSha256[] = "3636d0f0bd6bef02654cdffdc447b79cb2cef8ab02cc75267345946291a489e4";
constexpr char kPlainSha256[] = "8294c9cfe8d376e0ca14f0cf3bb6ff36cee42f31d0ea45dcda6919ee97d154c0";

struct Source {
  std::string file, text;
};

// A string, or a list of {name, template} with one named "default".
std::optional<std::string> template_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return std::nullopt;
  for (const Json& entry : value) {
    if (!entry.is_object()) continue;
    const Json* name = find_key(entry, "name");
    const Json* text = find_key(entry, "template");
    const bool is_default = name != nullptr && *name == "default";
    if (is_default && text != nullptr && text->is_string()) return text->get<std::string>();
  }
  return std::nullopt;
}

std::optional<Source> find_template(const std::filesystem::path& folder) {
  const auto jinja = folder / "chat_template.jinja";
  if (is_present(jinja)) return Source{path_text(jinja), read_file(jinja, kMaxTemplateBytes)};
  for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
    const auto path = folder / name;
    if (!is_present(path)) continue;
    const Json json = read_json(path);
    const Json* value = json.is_object() ? find_key(json, "chat_template") : nullptr;
    const auto text = value == nullptr ? std::nullopt : template_of(*value);
    if (text) return Source{path_text(path), *text};
  }
  return std::nullopt;
}

bool has_all(const std::string& text, std::initializer_list<const char*> markers) {
  for (const char* marker : markers) {
    if (text.find(marker) == std::string::npos) return false;
  }
  return true;
}

struct Recognised {
  Style style;
  bool is_known;
};

Recognised recognise(const std::string& text) {
  const std::string hash = sha256_hex(text);
  if (hash == kInstructSha256) return {Style::kInstruct, true};
  if (hash == kPlainSha256) return {Style::kPlain, true};
  if (has_all(text, {"last_query_index", "reasoning_content", "<think>", "<|vision_start|>"})) {
    return {Style::kThinking, true};
  }
  if (has_all(text, {"reasoning_content", "<think>"})) return {Style::kThinking, false};
  return {has_all(text, {"<tool_response>"}) ? Style::kInstruct : Style::kPlain, false};
}

void check_role(const ChatMessage& message, size_t index) {
  for (const char* role : {"system", "user", "assistant", "tool"}) {
    if (message.role == role) return;
  }
  throw Error(ErrorKind::kInput,
              fmt::format("messages[{}] has the role {}, which is none of system, user, assistant and tool", index,
                          in_quotes(message.role)));
}

void check_plain(const std::vector<ChatMessage>& messages, const ChatOptions& options) {
  bool uses_tools = !options.tools.empty();
  for (const ChatMessage& message : messages) uses_tools |= message.role == "tool" || !message.tool_calls.empty();
  if (!uses_tools) return;
  throw Error(ErrorKind::kInput,
              "this model's chat template knows no tools; send neither tools, tool calls nor tool messages");
}

}  // namespace

ChatTemplate ChatTemplate::load(const std::filesystem::path& folder) {
  const auto source = find_template(folder);
  const Recognised recognised = source ? recognise(source->text) : Recognised{Style::kInstruct, false};
  ChatTemplate chat(recognised.style);
  if (recognised.is_known) return chat;
  const std::string what =
      source ? source->file + " is not a known chat template" : path_text(folder) + " has no chat template";
  chat.note_ = fmt::format("{}; prompts are written as the {} template writes them", what, chat.style_name());
  return chat;
}

const char* ChatTemplate::style_name() const {
  switch (style_) {
    case Style::kThinking:
      return "Qwen3-VL Thinking";
    case Style::kPlain:
      return "plain";
    case Style::kInstruct:
      break;
  }
  return "Qwen3-VL Instruct";
}

std::vector<PromptPiece> ChatTemplate::render(const std::vector<ChatMessage>& messages,
                                              const ChatOptions& options) const {
  if (messages.empty()) throw Error(ErrorKind::kInput, "messages is empty; send at least one message");
  for (size_t i = 0; i < messages.size(); ++i) check_role(messages[i], i);
  switch (style_) {
    case Style::kThinking:
      return render_thinking(messages, options);
    case Style::kPlain:
      check_plain(messages, options);
      return render_plain(messages, options);
    case Style::kInstruct:
      break;
  }
  return render_instruct(messages, options);
}

}  // namespace vireo
