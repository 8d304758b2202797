// SPDX-License-Identifier: Apache-2.0
#include "engine/session.h"

#include <algorithm>

namespace vireo {

void Session::encode(const Prompt& prompt, const Probe* probe) {
  merged_ = {};
  deepstack_.clear();
  const int64_t tokens = static_cast<int64_t>(prompt.visual_rows.size());
  if (tokens == 0) return;
  const DType act = p_.backend.activation_type();
  const int64_t hidden = p_.config.text.hidden_size;
  merged_ = p_.backend.allocate(tokens, hidden, act);
  for (size_t i = 0; i < p_.config.vision.deepstack_layers.size(); ++i) {
    deepstack_.push_back(p_.backend.allocate(tokens, hidden, act));
  }
  int64_t first = 0;
  for (const Patches& patches : prompt.media) {
    const VisionInput input{patches.grid.t, patches.grid.h, patches.grid.w, patches.pixels.data()};
    const int64_t count = patches.grid.tokens(static_cast<int>(p_.config.vision.merge_size));
    VisionOutput output{merged_.view.slice_rows(first, count), {}};
    for (const OwnedTensor& d : deepstack_) output.deepstack.push_back(d.view.slice_rows(first, count));
    p_.tower.encode(input, output, probe, p_.check_cancelled);
    first += count;
  }
}

HostStep Session::chunk(const Prompt& prompt, int64_t begin, int64_t end) const {
  HostStep step;
  for (int64_t i = begin; i < end; ++i) {
    step.ids.push_back(prompt.ids[static_cast<size_t>(i)]);
    step.positions.push_back(prompt.positions[static_cast<size_t>(i)]);
    step.sequences.push_back(0);
    step.cache_indices.push_back(static_cast<int32_t>(i));
  }
  const auto& visual = prompt.visual_rows;
  const auto low = std::lower_bound(visual.begin(), visual.end(), begin);
  const auto high = std::lower_bound(visual.begin(), visual.end(), end);
  for (auto it = low; it != high; ++it) step.visual_rows.push_back(static_cast<int32_t>(*it - begin));
  if (low == high) return step;
  step.features = merged_.view.slice_rows(low - visual.begin(), high - low);
  for (const OwnedTensor& d : deepstack_) step.deepstack.push_back(d.view.slice_rows(low - visual.begin(), high - low));
  return step;
}

int32_t Session::extend(const Prompt& prompt, int64_t end) {
  while (length_ < end) {
    const int64_t stop = std::min(end, length_ + p_.prefill_chunk);
    HostStep step = chunk(prompt, length_, stop);
    if (stop == end) step.wanted.push_back(static_cast<int32_t>(step.rows() - 1));
    p_.runner.extend(step);
    p_.check_cancelled();
    length_ = stop;
  }
  const bool whole = end == static_cast<int64_t>(prompt.ids.size());
  next_position_ = whole ? prompt.next_position : prompt.positions[static_cast<size_t>(end)][0];
  return p_.runner.sampled()[0];
}

void Session::seat(int32_t token) {
  HostStep step;
  step.ids = {token};
  step.positions = {{next_position_, next_position_, next_position_}};
  step.sequences = {0};
  step.cache_indices = {static_cast<int32_t>(length_)};
  step.wanted = {0};
  p_.runner.seat(step);
}

int32_t Session::decode() {
  p_.runner.decode();
  p_.check_cancelled();
  ++length_;
  ++next_position_;
  return p_.runner.sampled()[0];
}

void Session::truncate(int64_t length, int32_t next_position) {
  CHECK(length >= 0 && length <= length_);
  length_ = length;
  next_position_ = next_position;
}

}  // namespace vireo
