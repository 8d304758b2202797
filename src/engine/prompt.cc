// SPDX-License-Identifier: Apache-2.0
#include "engine/prompt.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/image_cache.h"
#include "engine/options.h"
#include "files/quote.h"

namespace vireo {
namespace {

std::vector<ChatToolCall> tool_calls(const Message& message, size_t index) {
  std::vector<ChatToolCall> calls;
  if (message.tool_calls.empty()) return calls;
  const std::string what = fmt::format("messages[{}].tool_calls", index);
  const Json list = parse_json(message.tool_calls, what);
  if (!list.is_array()) throw Error(ErrorKind::kInput, what + " is not an array");
  for (const Json& call : list) {
    const Json* function = call.is_object() ? find_key(call, "function") : nullptr;
    const Json& f = function ? *function : call;
    const Json* name = f.is_object() ? find_key(f, "name") : nullptr;
    if (!name || !name->is_string()) throw Error(ErrorKind::kInput, what + ": a call has no function name");
    const Json* arguments = find_key(f, "arguments");
    calls.push_back({name->get<std::string>(), arguments ? *arguments : Json::object()});
  }
  return calls;
}

std::vector<ChatMessage> chat_messages(const Request& request) {
  std::vector<ChatMessage> out;
  for (size_t i = 0; i < request.messages.size(); ++i) {
    const Message& m = request.messages[i];
    ChatMessage c{.role = m.role, .tool_calls = tool_calls(m, i), .reasoning = m.reasoning};
    for (const Part& part : m.content) {
      const auto kind = part.kind == Part::Kind::kImage   ? ChatPart::Kind::kImage
                        : part.kind == Part::Kind::kVideo ? ChatPart::Kind::kVideo
                                                          : ChatPart::Kind::kText;
      c.content.push_back({kind, part.text});
    }
    out.push_back(std::move(c));
  }
  return out;
}

std::vector<Json> tool_schemas(const Request& request) {
  if (request.tools.empty()) return {};
  const Json tools = parse_json(request.tools, "tools");
  if (!tools.is_array()) throw Error(ErrorKind::kInput, "tools is not an array of function schemas");
  return {tools.begin(), tools.end()};
}

bool blank(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); });
}

// Where a picture's tokens go must be said by the template alone.
void check_pad_token(const Tokenizer& tokenizer, const std::string& text, int32_t id) {
  const auto& added = tokenizer.added_tokens();
  const auto it = std::find_if(added.begin(), added.end(), [&](const AddedToken& t) { return t.text == text; });
  if (it == added.end() || it->id != id) {
    throw Error(ErrorKind::kInput,
                fmt::format("tokenizer.json does not have {} as token {}, which config.json says: the two files are "
                            "of different checkpoints",
                            text, id));
  }
  if (it->special) return;
  throw Error(ErrorKind::kInput, fmt::format("tokenizer.json does not mark {} as special, so that text could be taken "
                                             "for a picture: restore the published file",
                                             text));
}

[[noreturn]] void refuse_pad_tokens() {
  throw Error(
      ErrorKind::kInput,
      "tokenizer.json does not keep <|image_pad|> and <|video_pad|> apart from text: restore the published file");
}

// One line for all media that the budget makes smaller; empty when there are none.
std::string smaller_note(const std::vector<Medium>& media, const PreprocessorConfig& config, int64_t budget,
                         const std::string& reason) {
  const MediaLimits limits = with_budget(config, budget);
  const int p = config.image.patch_size;
  std::string first;
  int more = 0;
  for (const Medium& m : media) {
    const Grid full = grid_of(m, config), less = grid_of(m, limits);
    if (full == less) continue;
    if (!first.empty()) ++more;
    if (first.empty())
      first = fmt::format("{} is read at {}x{} pixels instead of {}x{}", m.name, less.w * p, less.h * p, full.w * p,
                          full.h * p);
  }
  if (first.empty()) return first;
  return first + (more > 0 ? fmt::format(", and {} more smaller too", more) : "") + ": " + reason;
}

// Something must be asked: the last message has a picture, a clip or a word.
void check_not_empty(const Request& request) {
  if (request.messages.empty()) throw Error(ErrorKind::kInput, "there are no messages: send at least one user message");
  const Message& last = request.messages.back();
  for (const Part& part : last.content) {
    if (part.kind != Part::Kind::kText || !blank(part.text)) return;
  }
  if (!last.tool_calls.empty()) return;
  throw Error(
      ErrorKind::kInput,
      fmt::format("the prompt is empty: the last message ({}) has neither a word nor a picture", printable(last.role)));
}

std::vector<MediumSpan> spans_of(const Prompt& prompt, int merge_size, int threads) {
  std::vector<MediumSpan> spans;
  size_t row = 0;
  for (const Patches& p : prompt.media) {
    const size_t last = row + static_cast<size_t>(p.grid.tokens(merge_size)) - 1;
    spans.push_back({media_key(p, threads), prompt.visual_rows[row], prompt.visual_rows[last] + 1});
    row = last + 1;
  }
  return spans;
}

}  // namespace

std::vector<double> time_stamps(const Medium& m, int temporal_patch_size) {
  std::vector<double> stamps;
  const size_t per_patch = static_cast<size_t>(temporal_patch_size), n = m.frame_indices.size();
  for (size_t first = 0; first < n; first += per_patch) {
    double sum = 0;
    for (size_t i = first; i < first + per_patch; ++i) sum += m.frame_indices[std::min(i, n - 1)] / m.fps;
    stamps.push_back(sum / temporal_patch_size);
  }
  return stamps;
}

PromptBuilder::PromptBuilder(const ModelConfig& config, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                             const PreprocessorConfig& preprocessor, const Limits& limits)
    : config_(config), tokenizer_(tokenizer), template_(chat_template), preprocessor_(preprocessor), limits_(limits) {
  check_pad_token(tokenizer, "<|image_pad|>", config.image_token);
  check_pad_token(tokenizer, "<|video_pad|>", config.video_token);
}

// Only the template produces the pad tokens, so each one in the ids is the place of the next medium's run.
std::vector<int32_t> PromptBuilder::encode(const std::vector<PromptPiece>& pieces, const std::vector<Medium>& media,
                                           const std::vector<Grid>& grids, std::vector<VisualRun>* runs) const {
  std::vector<Tokenizer::Piece> text;
  std::vector<Grid> marks;  // one per pad token that the text will have
  size_t next = 0;
  for (const PromptPiece& piece : pieces) {
    if (piece.kind == PromptPiece::Kind::kText) {
      text.push_back(piece.text);
      continue;
    }
    const Grid& grid = grids[next];
    const Medium& medium = media[next++];
    if (piece.kind == PromptPiece::Kind::kImage) {
      text.push_back({"<|image_pad|>", Tokenizer::Added::kAll});
      marks.push_back(grid);
      continue;
    }
    for (double seconds : time_stamps(medium, preprocessor_.video.temporal_patch_size)) {
      text.push_back({fmt::format("<{:.1f} seconds><|vision_start|><|video_pad|><|vision_end|>", seconds),
                      Tokenizer::Added::kAll});
      marks.push_back({1, grid.h, grid.w});
    }
  }
  const int merge = preprocessor_.image.merge_size;
  std::vector<int32_t> ids;
  size_t mark = 0;
  for (int32_t id : tokenizer_.encode(text)) {
    if (id != config_.image_token && id != config_.video_token) {
      ids.push_back(id);
      continue;
    }
    if (mark == marks.size()) refuse_pad_tokens();
    const Grid& grid = marks[mark++];
    if (runs) runs->push_back({static_cast<int64_t>(ids.size()), grid.h / merge, grid.w / merge});
    ids.insert(ids.end(), static_cast<size_t>(grid.tokens(merge)), id);
  }
  if (mark != marks.size()) refuse_pad_tokens();
  return ids;
}

std::optional<int64_t> PromptBuilder::budget(const std::vector<PromptPiece>& pieces, const std::vector<Medium>& media,
                                             int max_new_tokens, std::vector<std::string>& notes) const {
  if (limits_.max_pixels == "none" || media.empty()) return std::nullopt;
  if (limits_.max_pixels != "auto") return parse_max_pixels(limits_.max_pixels);
  std::vector<Grid> nothing;  // as many time stamps as there will be, but no visual tokens
  nothing.reserve(media.size());
  for (const Medium& m : media) nothing.push_back({grid_of(m, preprocessor_).t, 0, 0});
  const int64_t text_tokens = static_cast<int64_t>(encode(pieces, media, nothing, nullptr).size());
  const int64_t room = limits_.max_seq - (max_new_tokens - 1) - text_tokens;
  std::optional<int64_t> cap;
  if (limits_.auto_cap > 0) cap = limits_.auto_cap;
  const auto chosen = fit_budget(media, preprocessor_, room, cap);
  if (!chosen) return chosen;
  const std::string note = smaller_note(
      media, preprocessor_, *chosen,
      chosen == cap ? fmt::format("at most {} pixels a picture; --max-pixels none lifts it", *chosen)
                    : fmt::format("{} pixels a picture leave room in max_seq {}; raise --max-seq to lift it", *chosen,
                                  limits_.max_seq));
  if (!note.empty()) notes.push_back(note);
  return chosen;
}

Prompt PromptBuilder::build(const Request& request) const {
  if (request.max_new_tokens < 1) {
    throw Error(ErrorKind::kUsage, fmt::format("max_new_tokens is {}: at least 1 is needed", request.max_new_tokens));
  }
  check_not_empty(request);
  ChatOptions chat{.tools = tool_schemas(request), .add_vision_id = request.add_vision_id};
  const auto pieces = template_.render(chat_messages(request), chat);
  const auto media = load_media(request, preprocessor_.video, limits_.rules);
  const size_t marks = static_cast<size_t>(std::count_if(
      pieces.begin(), pieces.end(), [](const PromptPiece& p) { return p.kind != PromptPiece::Kind::kText; }));
  if (marks != media.size()) {
    throw Error(ErrorKind::kInput,
                fmt::format("the chat template ({}) shows {} of {} pictures: put pictures into user messages",
                            template_.style_name(), marks, media.size()));
  }
  Prompt prompt;
  const MediaLimits limited = with_budget(preprocessor_, budget(pieces, media, request.max_new_tokens, prompt.notes));
  std::vector<Grid> grids;
  grids.reserve(media.size());
  for (const Medium& m : media) grids.push_back(grid_of(m, limited));
  std::vector<VisualRun> runs;
  prompt.ids = encode(pieces, media, grids, &runs);
  const int64_t tokens = static_cast<int64_t>(prompt.ids.size());
  if (tokens + request.max_new_tokens - 1 > limits_.max_seq) {
    throw Error(ErrorKind::kCapacity, fmt::format("the prompt has {} tokens, which with max_new_tokens {} does not fit "
                                                  "in max_seq {}: shorten it, or raise --max-seq",
                                                  tokens, request.max_new_tokens, limits_.max_seq));
  }
  for (const Medium& m : media) prompt.media.push_back(patches_of(m, limited, limits_.threads));
  for (const Patches& p : prompt.media) prompt.patches += p.grid.patches();
  prompt.positions = prompt_positions(tokens, runs, prompt.next_position);
  for (const VisualRun& run : runs) {
    for (int64_t i = 0; i < int64_t{run.rows} * run.cols; ++i)
      prompt.visual_rows.push_back(static_cast<int32_t>(run.first + i));
  }
  prompt.media_spans = spans_of(prompt, preprocessor_.image.merge_size, limits_.threads);
  return prompt;
}

}  // namespace vireo
