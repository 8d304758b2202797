// The files a chat template may come from, divided by NUL bytes.
// Covers: src/text/chat_template.cc src/base/sha256.cc
// SPDX-License-Identifier: Apache-2.0
#include "base/sha256_blocks.h"
#include "fuzz_util.h"
#include "text/chat_template.h"

using namespace vireo;

namespace {

const ChatMessage kQuestion{.role = "user", .content = {{ChatPart::Kind::kText, "Hello"}}};
const ChatMessage kResult{.role = "tool", .content = {{ChatPart::Kind::kText, "42"}}};

// The processor's own instructions and the plain code agree.
void hash_both_ways(const uint8_t* data, size_t size) {
  const AddSha256Blocks fast = fast_sha256_blocks();
  if (!fast) return;
  Sha256State state = {}, plain = {};
  fast(state, data, size / 64);
  add_sha256_blocks(plain, data, size / 64);
  fuzz::require(state == plain, "one hash");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hash_both_ways(data, size);
  constexpr const char* kFiles[] = {"chat_template.jinja", "chat_template.json", "tokenizer_config.json"};
  static const fuzz::Folder folder;
  const auto parts = fuzz::split(fuzz::as_text(data, size), std::string_view("\0", 1), std::size(kFiles));
  for (size_t i = 0; i < parts.size(); ++i) folder.put(kFiles[i], parts[i]);
  fuzz::accepts([&] {
    const ChatTemplate chat = ChatTemplate::load(folder.path());
    fuzz::require(chat.style_name() != nullptr, "a style has a name");
    fuzz::require(!chat.render({kQuestion}, {}).empty(), "every template renders a question");
    fuzz::accepts([&] { chat.render({kQuestion, kResult}, {}); });
    fuzz::require(!fuzz::accepts([&] { chat.render({}, {}); }), "no messages are refused");
    fuzz::require(!fuzz::accepts([&] { chat.render({{.role = "robot\n"}}, {}); }), "unknown roles are refused");
  });
  return 0;
}
