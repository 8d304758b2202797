// SPDX-License-Identifier: Apache-2.0
#include "goldens.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/mrope.h"

namespace vireo::parity {
namespace {

constexpr int64_t kPages = 16;

std::filesystem::path set_folder(const std::string& set) {
  return std::filesystem::path(VIREO_TEST_DATA) / "goldens" / set;
}

}  // namespace

std::filesystem::path checkpoint_folder(const std::string& set) {
  if (set == "tiny") return std::filesystem::path(VIREO_SOURCE_DIR) / "models/tiny";
  return set_folder(set) / "checkpoint";
}

Json read_index(const std::string& set) {
  return read_json(set_folder(set) / "index.json");
}

Golden::Golden(const std::string& set, const std::string& name)
    : file(SafetensorsFile::open(set_folder(set) / (name + ".safetensors"))) {
  for (const HostTensor& t : file.tensors()) tensors[t.name] = &t;
}

std::vector<float> Golden::floats(const std::string& name) const {
  const HostTensor& t = *tensors.at(name);
  CHECK(t.dtype == DType::kF32);
  std::vector<float> out(static_cast<size_t>(t.size()));
  std::memcpy(out.data(), t.data, t.bytes());
  return out;
}

std::vector<int64_t> Golden::ints(const std::string& name) const {
  const HostTensor& t = *tensors.at(name);
  std::vector<int64_t> out;
  const char* data = static_cast<const char*>(t.data);  // not always aligned in these files
  for (int64_t i = 0; i < t.size(); ++i) {
    int64_t wide = 0;
    int32_t narrow = 0;
    if (t.dtype == DType::kI64) std::memcpy(&wide, data + 8 * i, 8);
    if (t.dtype == DType::kI32) std::memcpy(&narrow, data + 4 * i, 4);
    out.push_back(wide + narrow);
  }
  return out;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

Rig::Rig(const std::string& set, std::unique_ptr<Backend> backend, int64_t max_rows, const RunnerFactory& make_runner,
         int64_t sequences, const TierPlan& tiers, KvMode kv_mode)
    : backend_(std::move(backend)) {
  const auto folder = checkpoint_folder(set);
  checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(folder));
  config_ = load_model_config(folder);
  weights_ = load_weights(*checkpoint_, config_, *backend_, {}, tiers);
  const PixelScale scale{{127.5f, 127.5f, 127.5f}, {127.5f, 127.5f, 127.5f}};
  tower_ = std::make_unique<VisionTower>(config_.vision, weights_.vision, *backend_, scale);
  decoder_ = std::make_unique<Decoder>(config_, weights_.decoder, *backend_,
                                       Decoder::Shape{max_rows, max_rows, sequences * kPages * kPageTokens, kv_mode});
  runner_ = make_runner(*backend_, [this](const Step& step) { return decoder_->forward(step); },
                        {.max_rows = max_rows, .sequences = sequences, .pages = kPages});
}

// Pictures or clips, all of a case's patches one after the other, encoded as one input per grid.
void Rig::encode(const Golden& golden, const std::string& kind, int32_t token, Prompt& prompt, const Probe* probe) {
  const std::string pixels_name = kind == "image" ? "pixel_values_u8" : "pixel_values_videos_u8";
  if (!golden.has(pixels_name)) return;
  const auto grids = golden.ints(kind + "_grid_thw");
  const uint8_t* pixels = static_cast<const uint8_t*>(golden.tensors.at(pixels_name)->data);
  int64_t tokens = 0;
  for (size_t g = 0; g < grids.size(); g += 3) tokens += grids[g] * grids[g + 1] * grids[g + 2] / 4;
  const int64_t hidden = config_.text.hidden_size;
  prompt.merged = backend_->allocate(tokens, hidden, backend_->activation_type());
  for (size_t i = 0; i < config_.vision.deepstack_layers.size(); ++i) {
    prompt.deepstack.push_back(backend_->allocate(tokens, hidden, backend_->activation_type()));
  }
  int64_t first = 0;
  for (size_t g = 0; g < grids.size(); g += 3) {
    const VisionInput input{static_cast<int>(grids[g]), static_cast<int>(grids[g + 1]), static_cast<int>(grids[g + 2]),
                            pixels};
    const int64_t count = input.patches() / 4;
    VisionOutput output{prompt.merged.view.slice_rows(first, count), {}};
    for (const OwnedTensor& d : prompt.deepstack) output.deepstack.push_back(d.view.slice_rows(first, count));
    tower_->encode(input, output, probe);
    first += count;
    pixels += input.patches() * config_.vision.patch_dim();
  }
  for (size_t i = 0; i < prompt.ids.size(); ++i) {
    if (prompt.ids[i] == token) prompt.visual_rows.push_back(static_cast<int32_t>(i));
  }
}

Rig::Prompt Rig::prepare(const Golden& golden, const Probe* probe) {
  Prompt p;
  for (int64_t id : golden.ints("input_ids")) p.ids.push_back(static_cast<int32_t>(id));
  encode(golden, "image", config_.image_token, p, probe);
  encode(golden, "video", config_.video_token, p, probe);
  std::vector<VisualRun> runs;
  size_t at = 0;
  for (const std::string kind : {"image", "video"}) {
    if (!golden.has(kind + "_grid_thw")) continue;
    const auto grids = golden.ints(kind + "_grid_thw");
    for (size_t g = 0; g < grids.size(); g += 3) {
      for (int64_t t = 0; t < grids[g]; ++t) {
        const VisualRun run{p.visual_rows[at], static_cast<int32_t>(grids[g + 1] / 2),
                            static_cast<int32_t>(grids[g + 2] / 2)};
        at += static_cast<size_t>(run.rows * run.cols);
        runs.push_back(run);
      }
    }
  }
  p.positions = prompt_positions(static_cast<int64_t>(p.ids.size()), runs, p.next_position);
  return p;
}

void Rig::extend(const Prompt& p, int64_t begin, int64_t end, bool all, int32_t sequence) {
  HostStep step;
  for (int64_t i = begin; i < end; ++i) {
    step.ids.push_back(p.ids[static_cast<size_t>(i)]);
    step.positions.push_back(p.positions[static_cast<size_t>(i)]);
    step.sequences.push_back(sequence);
    step.cache_indices.push_back(static_cast<int32_t>(i));
    if (all) step.wanted.push_back(static_cast<int32_t>(i - begin));
  }
  if (!all && end == static_cast<int64_t>(p.ids.size())) step.wanted.push_back(static_cast<int32_t>(end - begin - 1));
  const auto low = std::lower_bound(p.visual_rows.begin(), p.visual_rows.end(), begin);
  const auto high = std::lower_bound(p.visual_rows.begin(), p.visual_rows.end(), end);
  for (auto it = low; it != high; ++it) step.visual_rows.push_back(static_cast<int32_t>(*it - begin));
  if (low != high) {
    step.features = p.merged.view.slice_rows(low - p.visual_rows.begin(), high - low);
    for (const OwnedTensor& d : p.deepstack) {
      step.deepstack.push_back(d.view.slice_rows(low - p.visual_rows.begin(), high - low));
    }
  }
  runner_->extend(step);
}

void Rig::extend_in_chunks(const Prompt& p, int64_t chunk) {
  const int64_t n = static_cast<int64_t>(p.ids.size());
  for (int64_t begin = 0; begin < n; begin += chunk) extend(p, begin, std::min(n, begin + chunk), false);
}

void Rig::seat(const std::vector<Seat>& seats) {
  HostStep step;
  for (const auto& [p, token, cache_index] : seats) {
    const int32_t row = static_cast<int32_t>(step.rows());
    const int32_t position = p.next_position + static_cast<int32_t>(cache_index - static_cast<int64_t>(p.ids.size()));
    step.ids.push_back(token);
    step.positions.push_back({position, position, position});
    step.sequences.push_back(row);
    step.cache_indices.push_back(static_cast<int32_t>(cache_index));
    step.wanted.push_back(row);
  }
  runner_->seat(step);
}

void Rig::decode(const Prompt& p, int32_t token, int64_t cache_index) {
  seat({{p, token, cache_index}});
  runner_->decode();
}

std::vector<float> Rig::read(Tensor t) {
  std::vector<float> out(static_cast<size_t>(t.size()));
  if (t.dtype == DType::kF32) {
    backend_->download(t, out.data());
  } else {
    CHECK(t.dtype == DType::kBF16);
    std::vector<bf16> narrow(out.size());
    backend_->download(t, narrow.data());
    std::ranges::transform(narrow, out.begin(), to_float);
  }
  return out;
}

}  // namespace vireo::parity
