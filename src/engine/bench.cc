// Timing one checkpoint part by part, each figure beside what the machine can do at most.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/backends.h"
#include "engine/bench_profile.h"
#include "engine/model.h"
#include "engine/options.h"
#include "engine/session.h"
#include "files/image_file.h"
#include "files/json.h"
#include "vireo/tools.h"

namespace vireo {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

BenchFigure figure(const std::string& name, const std::string& unit, std::vector<double> values,
                   const std::string& of = "", double share = 0) {
  std::sort(values.begin(), values.end());
  return {name, unit, values[values.size() / 2], values.front(), values.back(), of, share};
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Multiplications and additions of the tower's products and attention for one picture.
double vision_operations(const VisionConfig& c, const Grid& g) {
  const double n = static_cast<double>(g.patches()), h = static_cast<double>(c.hidden_size);
  const double merged = n / static_cast<double>(c.merge_unit()), m = h * static_cast<double>(c.merge_unit());
  const double span = static_cast<double>(g.h) * g.w;
  const double block = n * (4 * h * h + 2 * h * static_cast<double>(c.intermediate_size)) + 2 * n * span * h;
  const double merger = merged * (m * m + m * static_cast<double>(c.out_hidden_size));
  const double mergers = 1 + static_cast<double>(c.deepstack_layers.size());
  return 2 * (static_cast<double>(c.depth) * block + mergers * merger + n * static_cast<double>(c.patch_dim()) * h);
}

double layer_weights(const TextConfig& c) {
  const double attention = static_cast<double>(c.hidden_size * (2 * c.q_size() + 2 * c.kv_size()));
  const int64_t mlp =
      c.num_experts > 0 ? 3 * c.experts_per_token * c.moe_intermediate_size + c.num_experts : 3 * c.intermediate_size;
  return attention + static_cast<double>(c.hidden_size * mlp);
}

double head_weights(const TextConfig& c) {
  return static_cast<double>(c.vocab_size * c.hidden_size);
}

double prefill_operations(const TextConfig& c, double tokens) {
  const double attention = tokens * tokens * static_cast<double>(c.q_size());  // half of the square, twice
  return 2 * (static_cast<double>(c.num_layers) * (tokens * layer_weights(c) + attention) + head_weights(c));
}

// Bytes that one decode step reads at a cache of `tokens`: of projections in a tier that copy instead of the one in BF16.
double decode_bytes(const TextConfig& c, const TierPlan& tiers, DType kv_type, double tokens) {
  double weights = 2 * (static_cast<double>(c.num_layers) * layer_weights(c) + head_weights(c));
  for (const Projection& p : projections(c)) {
    weights -= (2 - tier_bits(tiers.of(p.layer, p.name)) / 8) * static_cast<double>(p.out) * static_cast<double>(p.in);
  }
  return weights + tokens * static_cast<double>(Decoder::kv_bytes_per_token(c, kv_type));
}

// What is asked about which picture: of noise, or a file's bytes.
class Questions {
 public:
  explicit Questions(const BenchOptions& o) : o_(o) {
    if (o.image.empty()) {
      pixels_.resize(static_cast<size_t>(3 * o.width * o.height));
      for (size_t i = 0; i < pixels_.size(); ++i) pixels_[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
    } else {
      const std::string bytes = read_file(o.image, ImageLimits{}.max_bytes);
      picture_.bytes.assign(reinterpret_cast<const std::byte*>(bytes.data()),
                            reinterpret_cast<const std::byte*>(bytes.data()) + bytes.size());
    }
  }

  // The question with `words` more of them, about the picture without its last `less` columns, which only noise can be.
  Request ask(int words = 0, int less = 0) const {
    Picture picture = picture_;
    if (!pixels_.empty()) {
      picture.rgb = pixels_.data();
      picture.width = o_.width - less;
      picture.height = o_.height;
      picture.stride = int64_t{3} * o_.width;
    }
    std::string text = "Describe this image in one sentence.";
    for (int i = 0; i < words; ++i) text += " please";
    Request request{.max_new_tokens = o_.decode_steps + 1};
    request.messages.push_back(
        {.role = "user", .content = {{.kind = Part::Kind::kImage, .image = picture}, {.text = text}}});
    return request;
  }

 private:
  const BenchOptions& o_;
  std::vector<uint8_t> pixels_;
  Picture picture_;
};

struct Rounds {
  std::vector<double> media_ms, vision_ms, prefill_ms, answer_ms, step_ms, read_rate, product_rate, new_length_ms,
      new_size_ms;
};

}  // namespace

DecodeLimit decode_limit(const Options& options, int64_t tokens) {
  const ModelFiles files = open_model(options.checkpoint, options.hub_cache);
  std::vector<std::string> notes;
  const auto backend = make_backend(options, notes);
  return {.read_rate = backend->measure_read_rate(),
          .step_bytes =
              decode_bytes(files.config.text, tier_plan(options), backend->kv_type(), static_cast<double>(tokens))};
}

BenchReport bench(const BenchOptions& o, const OnStage& on_stage) {
  validate(o.engine);
  if (o.width < 1 || o.height < 1 || o.decode_steps < 1 || o.rounds < 1) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("a picture of {}x{}, {} decode steps and {} rounds cannot be timed: each must be at least 1",
                    o.width, o.height, o.decode_steps, o.rounds));
  }
  const Questions questions(o);
  const auto loading = Clock::now();
  Model model(o.engine, {});
  const double load_ms = ms_since(loading);
  const ModelConfig& c = model.files.config;
  PromptBuilder prompts(c, model.files.tokenizer, model.files.chat_template, model.files.preprocessor,
                        {.max_seq = o.engine.max_seq, .max_pixels = o.engine.max_pixels, .threads = o.engine.threads});
  ImageCache images(0);
  Session session(
      {c, *model.backend, *model.tower, *model.decoder, *model.runner, images, model.step_shape.max_rows, [] {}});
  const Prompt prompt = prompts.build(questions.ask());

  Rounds r;
  // From the picture and the text to the first id; before that, to the patches.
  struct AnswerTimes {
    double media_ms, all_ms;
  };
  const auto answer = [&](const Request& request) {
    const auto start = Clock::now();
    const Prompt p = prompts.build(request);
    const double media_ms = ms_since(start);
    session.reset();
    images.clear();
    session.begin(p);
    session.encode(p);
    session.extend(p);
    return AnswerTimes{media_ms, ms_since(start)};
  };
  const auto first_more_than_next = [&](const Request& request) {
    const double first = answer(request).all_ms;
    return first - answer(request).all_ms;
  };
  for (int round = 0; round <= o.rounds; ++round) {
    if (on_stage) on_stage("timing", round, o.rounds + 1);
    r.read_rate.push_back(model.backend->measure_read_rate());
    r.product_rate.push_back(model.backend->measure_product_rate());
    const AnswerTimes times = answer(questions.ask());
    r.media_ms.push_back(times.media_ms);
    r.answer_ms.push_back(times.all_ms);
    session.reset();
    images.clear();
    session.begin(prompt);
    const auto vision = Clock::now();
    session.encode(prompt);
    r.vision_ms.push_back(ms_since(vision));
    const auto prefill = Clock::now();
    int32_t id = std::max(0, session.extend(prompt));
    r.prefill_ms.push_back(ms_since(prefill));
    session.seat(id);
    for (int step = 0; step < o.decode_steps; ++step) {
      const auto start = Clock::now();
      id = std::max(0, session.decode(id, o.decode_steps - step - 1));
      if (round > 0) r.step_ms.push_back(ms_since(start));
    }
  }
  // The first round warmed everything up.
  for (auto* values : {&r.media_ms, &r.vision_ms, &r.prefill_ms, &r.answer_ms, &r.read_rate, &r.product_rate}) {
    values->erase(values->begin());
  }
  for (int round = 1; o.first_use && round <= o.rounds; ++round) {
    if (on_stage) on_stage("timing first use", round - 1, o.rounds);
    r.new_length_ms.push_back(first_more_than_next(questions.ask(round * 3)));
    constexpr int kColumns = 64;
    if (o.image.empty() && o.width > round * kColumns) {
      r.new_size_ms.push_back(first_more_than_next(questions.ask(0, round * kColumns)));
    }
  }

  const double read = median(r.read_rate), product = median(r.product_rate);
  const double tokens = static_cast<double>(prompt.ids.size());
  const auto share = [](double value, double most) { return most > 0 ? value / most : 0; };
  const auto scaled = [](std::vector<double> values, double by) {
    for (double& v : values) v *= by;
    return values;
  };
  std::vector<std::string> notes = model.info.notes;
  for (std::string& note : model.backend->notes()) notes.push_back(std::move(note));
  BenchReport report{model.info.device,
                     std::move(notes),
                     c.model_type,
                     static_cast<int>(prompt.patches),
                     static_cast<int>(tokens),
                     {}};
  const double vision_ops = vision_operations(c.vision, prompt.media[0].grid);
  const double step_bytes =
      decode_bytes(c.text, tier_plan(o.engine), model.backend->kv_type(), tokens + o.decode_steps / 2.0);
  std::vector<double> rates;
  rates.reserve(r.step_ms.size());
  for (double ms : r.step_ms) rates.push_back(1000 / ms);
  report.figures = {
      figure("read", "GB/s", scaled(r.read_rate, 1e-9)),
      figure("product", "GFLOP/s", scaled(r.product_rate, 1e-9)),
      figure("load", "ms", {load_ms}),
      figure("picture to patches", "ms", r.media_ms),
      figure("vision", "ms", r.vision_ms, "product", share(vision_ops / median(r.vision_ms) * 1000, product)),
      figure("prefill", "ms", r.prefill_ms, "product",
             share(prefill_operations(c.text, tokens) / median(r.prefill_ms) * 1000, product)),
      figure("picture to first id", "ms", r.answer_ms),
      figure("decode", "tokens/s", rates, "read", share(step_bytes * median(rates), read)),
  };
  if (!r.new_length_ms.empty()) report.figures.push_back(figure("new length, extra", "ms", r.new_length_ms));
  if (!r.new_size_ms.empty()) report.figures.push_back(figure("new size, extra", "ms", r.new_size_ms));
  if (o.profile) {
    for (BenchFigure& f : profile(model, prompt, o.rounds, std::min(o.decode_steps, 8)))
      report.figures.push_back(std::move(f));
  }
  return report;
}

}  // namespace vireo
