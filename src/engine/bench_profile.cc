// SPDX-License-Identifier: Apache-2.0
#include "engine/bench_profile.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "engine/image_cache.h"
#include "engine/session.h"
#include "ops/timed_backend.h"

namespace vireo {
namespace {

// Products that have a part of their own.
using Named = std::map<const Linear*, std::string>;
Named named(const ModelWeights& w) {
  Named names = {{w.vision.patch_embed.get(), "patch embedding"},
                 {w.vision.merger.fc1.get(), "mergers"},
                 {w.vision.merger.fc2.get(), "mergers"},
                 {&w.decoder.head(), "head"}};
  for (const Merger& m : w.vision.deepstack_mergers) names[m.fc1.get()] = names[m.fc2.get()] = "mergers";
  return names;
}

// The part of the model that an op belongs to.
std::string part_of(const Named& names, std::string_view op, const Linear* w) {
  if (w) {
    const auto found = names.find(w);
    if (found != names.end()) return found->second;
    return op == "experts" ? "experts" : "products";
  }
  if (op.find("attend") != op.npos) return "attention";
  if (op == "append_kv") return "attention";
  if (op.find("norm") != op.npos && op != "normalize_pixels") return "norms";
  if (op.find("rope") != op.npos) return "rotation";
  if (op == "sample" || op == "advance") return "choice of the id";
  return "rows";
}

using Times = std::map<std::string, std::map<std::string, double>>;  // by phase and part, ms

}  // namespace

std::vector<BenchFigure> profile(Model& model, const Prompt& prompt, int rounds, int decode_steps) {
  const ModelConfig& c = model.files.config;
  const Named names = named(model.weights);
  std::string phase;
  Times times;
  const auto backend = make_timed_backend(*model.backend, [&](const char* op, const Linear* w, double seconds) {
    times[phase][part_of(names, op, w)] += seconds * 1000;
  });
  VisionTower tower(c.vision, model.weights.vision, *backend, pixel_scale(model.files.preprocessor.image));
  Decoder decoder(c, model.weights.decoder, *backend,
                  {.max_rows = model.step_shape.max_rows,
                   .max_wanted = 1,
                   .slots = model.step_shape.pages * kPageTokens,
                   .kv_mode = model.kv_mode});
  const auto runner = make_eager_runner(
      *backend, [&](const Step& step) { return decoder.forward(step); }, model.step_shape);
  ImageCache images(0);
  Session session({c, *backend, tower, decoder, *runner, images, model.step_shape.max_rows, [] {}});
  std::map<std::pair<std::string, std::string>, std::vector<double>> rows;
  for (int round = 0; round <= rounds; ++round) {
    times.clear();
    session.reset();
    images.clear();
    session.begin(prompt);
    phase = "vision";
    session.encode(prompt);
    phase = "prefill";
    int32_t id = std::max(0, session.extend(prompt));
    session.seat(id);
    phase = "decode";
    for (int step = 0; step < decode_steps; ++step) id = std::max(0, session.decode(id, 0));
    if (round == 0) continue;  // warms everything up
    for (const auto& [name, parts] : times) {
      const double per = name == "decode" ? decode_steps : 1;
      for (const auto& [part, ms] : parts) rows[{name, part}].push_back(ms / per);
    }
  }
  std::vector<BenchFigure> figures;
  for (const char* name : {"vision", "prefill", "decode"}) {
    const size_t first = figures.size();
    double all = 0;
    for (auto& [key, values] : rows) {
      if (key.first != name) continue;
      std::sort(values.begin(), values.end());
      figures.push_back({std::string(name) + ": " + key.second, "ms", values[values.size() / 2], values.front(),
                         values.back(), name, 0});
      all += figures.back().median;
    }
    for (size_t i = first; i < figures.size(); ++i) figures[i].share = figures[i].median / all;
    std::sort(figures.begin() + static_cast<int64_t>(first), figures.end(),
              [](const BenchFigure& a, const BenchFigure& b) { return a.median > b.median; });
  }
  return figures;
}

}  // namespace vireo
