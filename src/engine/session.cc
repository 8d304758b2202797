// SPDX-License-Identifier: Apache-2.0
#include "engine/session.h"

#include <algorithm>

namespace vireo {
namespace {

// Tokens that two prompts have in common from the start on; pictures are the same when their keys are.
int64_t common_tokens(const std::vector<int32_t>& a, const std::vector<MediumSpan>& a_media, const Prompt& b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.ids.begin(), b.ids.end());
  int64_t common = ends.first - a.begin();
  for (size_t i = 0; i < b.media_spans.size(); ++i) {
    const MediumSpan& medium = b.media_spans[i];
    if (medium.first_token >= common) break;
    if (i < a_media.size() && a_media[i] == medium && medium.end_token <= common) continue;
    return medium.first_token;
  }
  return common;
}

}  // namespace

void Session::reset() {
  ids_.clear();
  media_.clear();
  next_position_ = 0;
}

int64_t Session::begin(const Prompt& prompt) {
  const int64_t most = static_cast<int64_t>(prompt.ids.size()) - 1;
  const int64_t kept = std::min(most, common_tokens(ids_, media_, prompt));
  ids_.resize(static_cast<size_t>(kept));
  media_.clear();
  for (const MediumSpan& m : prompt.media_spans) {
    if (m.first_token < kept) media_.push_back(m);
  }
  next_position_ = prompt.positions[static_cast<size_t>(kept)][0];
  return kept;
}

EncodedMedium Session::encode_one(const Prompt& prompt, size_t index, const OnStage& on_stage, const Probe* probe) {
  const Patches& patches = prompt.media[index];
  const DType act = p_.backend.activation_type();
  const int64_t tokens = patches.grid.tokens(static_cast<int>(p_.config.vision.merge_size));
  const int64_t hidden = p_.config.text.hidden_size;
  EncodedMedium medium{prompt.media_spans[index].key, p_.backend.allocate(tokens, hidden, act), {}};
  VisionOutput output{medium.merged.view, {}};
  for (size_t i = 0; i < p_.config.vision.deepstack_layers.size(); ++i) {
    medium.deepstack.push_back(p_.backend.allocate(tokens, hidden, act));
    output.deepstack.push_back(medium.deepstack.back().view);
  }
  const int64_t blocks = p_.config.vision.depth, media = static_cast<int64_t>(prompt.media.size());
  int64_t done = static_cast<int64_t>(index) * blocks;
  const VisionInput input{patches.grid.t, patches.grid.h, patches.grid.w, patches.pixels.data()};
  p_.tower.encode(input, output, probe, [&] {
    p_.check_cancelled();
    if (on_stage) on_stage("vision", done++, blocks * media);
  });
  p_.check_cancelled();  // an encoding that was cut short must not be remembered
  return medium;
}

void Session::encode(const Prompt& prompt, const OnStage& on_stage, const Probe* probe) {
  merged_ = {};
  deepstack_.clear();
  const auto& rows = prompt.visual_rows;
  first_visual_ = static_cast<size_t>(std::lower_bound(rows.begin(), rows.end(), length()) - rows.begin());
  const int64_t tokens = static_cast<int64_t>(rows.size() - first_visual_);
  if (tokens == 0) return;
  const DType act = p_.backend.activation_type();
  const int64_t hidden = p_.config.text.hidden_size;
  merged_ = p_.backend.allocate(tokens, hidden, act);
  for (size_t i = 0; i < p_.config.vision.deepstack_layers.size(); ++i) {
    deepstack_.push_back(p_.backend.allocate(tokens, hidden, act));
  }
  int64_t row = 0;
  for (size_t i = 0; i < prompt.media.size(); ++i) {
    if (prompt.media_spans[i].first_token < length()) continue;
    const EncodedMedium* medium = probe ? nullptr : p_.images.find(prompt.media_spans[i].key);
    if (!medium) medium = &p_.images.add(encode_one(prompt, i, on_stage, probe));
    const int64_t count = medium->merged.view.rows;
    p_.backend.copy(medium->merged.view, merged_.view.slice_rows(row, count));
    for (size_t d = 0; d < deepstack_.size(); ++d) {
      p_.backend.copy(medium->deepstack[d].view, deepstack_[d].view.slice_rows(row, count));
    }
    row += count;
  }
  CHECK(row == tokens);
  p_.backend.wait();  // so that the time is the tower's and not the prefill's
}

HostStep Session::chunk(const Prompt& prompt, int64_t begin, int64_t end) const {
  HostStep step;
  for (int64_t i = begin; i < end; ++i) {
    step.ids.push_back(prompt.ids[static_cast<size_t>(i)]);
    step.positions.push_back(prompt.positions[static_cast<size_t>(i)]);
    step.sequences.push_back(0);
    step.cache_indices.push_back(static_cast<int32_t>(i));
  }
  const auto first = prompt.visual_rows.begin() + static_cast<int64_t>(first_visual_);
  const auto low = std::lower_bound(first, prompt.visual_rows.end(), begin);
  const auto high = std::lower_bound(first, prompt.visual_rows.end(), end);
  for (auto it = low; it != high; ++it) step.visual_rows.push_back(static_cast<int32_t>(*it - begin));
  if (low == high) return step;
  step.features = merged_.view.slice_rows(low - first, high - low);
  for (const OwnedTensor& d : deepstack_) step.deepstack.push_back(d.view.slice_rows(low - first, high - low));
  return step;
}

int32_t Session::extend(const Prompt& prompt, const OnStage& on_stage) {
  const int64_t end = static_cast<int64_t>(prompt.ids.size());
  while (length() < end) {
    const int64_t begin = length(), stop = std::min(end, begin + p_.prefill_chunk);
    if (on_stage) on_stage("prefill", begin, end);
    HostStep step = chunk(prompt, begin, stop);
    if (stop == end) step.wanted.push_back(static_cast<int32_t>(step.rows() - 1));
    p_.runner.extend(step);
    p_.check_cancelled();
    ids_.insert(ids_.end(), prompt.ids.begin() + begin, prompt.ids.begin() + stop);
  }
  media_ = prompt.media_spans;
  next_position_ = prompt.next_position;
  return p_.runner.sampled()[0];
}

void Session::seat(int32_t token) {
  HostStep step;
  step.ids = {token};
  step.positions = {{next_position_, next_position_, next_position_}};
  step.sequences = {0};
  step.cache_indices = {static_cast<int32_t>(length())};
  step.wanted = {0};
  p_.runner.seat(step);
}

int32_t Session::decode(int32_t token, int64_t more) {
  p_.runner.run_ahead(std::min<int64_t>(more, 1));
  p_.runner.decode();
  p_.check_cancelled();
  ids_.push_back(token);
  ++next_position_;
  return p_.runner.sampled()[0];
}

}  // namespace vireo
