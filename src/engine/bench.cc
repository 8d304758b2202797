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
double decode_bytes(const ModelConfig& config, const Options& o, DType kv_type, double tokens) {
  const TextConfig& c = config.text;
  const TierPlan tiers = tier_plan(o, config);
  double weights = 2 * (static_cast<double>(c.num_layers) * layer_weights(c) + head_weights(c));
  for (const Projection& p : projections(c)) {
    const int64_t read = (p.experts > 0 ? c.experts_per_token : 1) * p.out * p.in;
    weights -= (2 - tier_bits(tiers.of(p.layer, p.name)) / 8) * static_cast<double>(read);
  }
  return weights + tokens * static_cast<double>(Decoder::kv_bytes_per_token(c, kv_type, kv_mode(o)));
}

// What is asked about which picture: of noise, or a file's bytes.
class Questions {
 public:
  explicit Questions(const BenchOptions& o) : o_(o) {
    if (o.image.empty()) {
      pixels_.resize(size_t{3} * static_cast<size_t>(o.width) * static_cast<size_t>(o.height));
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
  std::vector<double> media_ms, answer_ms, step_ms, read_rate, product_rate, own_product_rate, new_length_ms,
      new_size_ms;
};

// One loaded model and what is measured of it.
class Bencher {
 public:
  explicit Bencher(const BenchOptions& options)
      : o_(options),
        questions_(options),
        loading_(Clock::now()),
        model_(without_recorded_prefill(options.engine), {}),
        load_ms_(ms_since(loading_)),
        c_(model_.files.config),
        prompts_(prompts_of(options.engine.max_pixels)),
        session_(session_of(*model_.runner)),
        prompt_(prompts_.build(questions_.ask())) {}

  BenchReport run(const OnStage& on_stage);

 private:
  // From the picture and the text to the first id; before that, to the patches.
  struct AnswerTimes {
    double media_ms, all_ms;
  };
  struct PromptTimes {
    std::vector<double> vision_ms, prefill_ms;
  };

  // That is timed apart.
  static Options without_recorded_prefill(Options options) {
    options.prefill_graph = false;
    return options;
  }
  PromptBuilder prompts_of(const std::string& max_pixels) const {
    return {c_,
            model_.files.tokenizer,
            model_.files.chat_template,
            model_.files.preprocessor,
            {.max_seq = o_.engine.max_seq, .max_pixels = max_pixels, .threads = o_.engine.threads}};
  }
  Session session_of(Runner& runner) {
    return Session(
        {c_, *model_.backend, *model_.tower, *model_.decoder, runner, images_, model_.step_shape.max_rows, [] {}});
  }

  AnswerTimes answer(const Request& request);
  // Begins anew; returns the first id.
  int32_t time_prompt(Session& session, const Prompt& prompt, PromptTimes& times);
  void time_round(bool counts);
  void time_first_use(int round);
  void time_caps();
  // With a runner of its own, where the backend can record.
  void time_recorded_prefill(const std::string& at, const Prompt& prompt);

  BenchFigure vision_figure(const std::string& name, const Prompt& prompt, const PromptTimes& times) const;
  BenchFigure prefill_figure(const std::string& name, const Prompt& prompt, const std::vector<double>& ms) const;
  BenchReport report() const;

  const BenchOptions& o_;
  const Questions questions_;
  const Clock::time_point loading_;
  Model model_;
  const double load_ms_;
  const ModelConfig& c_;
  ImageCache images_{0};
  PromptBuilder prompts_;
  Session session_;
  const Prompt prompt_;
  Rounds r_;
  PromptTimes times_;
  std::vector<BenchFigure> more_;
};

double share_of(double value, double most) {
  return most > 0 ? value / most : 0;
}

std::vector<double> scaled(std::vector<double> values, double by) {
  for (double& v : values) v *= by;
  return values;
}

Bencher::AnswerTimes Bencher::answer(const Request& request) {
  const auto start = Clock::now();
  const Prompt p = prompts_.build(request);
  const double media_ms = ms_since(start);
  session_.reset();
  images_.clear();
  session_.begin(p);
  session_.encode(p);
  session_.extend(p);
  return {media_ms, ms_since(start)};
}

int32_t Bencher::time_prompt(Session& session, const Prompt& prompt, PromptTimes& times) {
  session.reset();
  images_.clear();
  session.begin(prompt);
  const auto vision = Clock::now();
  session.encode(prompt);
  times.vision_ms.push_back(ms_since(vision));
  const auto prefill = Clock::now();
  const int32_t id = std::max(0, session.extend(prompt));
  times.prefill_ms.push_back(ms_since(prefill));
  return id;
}

// The first round warms everything up.
void Bencher::time_round(bool counts) {
  Rounds r;
  r.read_rate = {model_.backend->measure_read_rate()};
  r.product_rate = {model_.backend->measure_product_rate()};
  r.own_product_rate = {model_.backend->measure_own_product_rate()};
  const AnswerTimes times = answer(questions_.ask());
  r.media_ms = {times.media_ms};
  r.answer_ms = {times.all_ms};
  PromptTimes prompt_times;
  int32_t id = time_prompt(session_, prompt_, prompt_times);
  session_.seat(id);
  for (int step = 0; step < o_.decode_steps; ++step) {
    const auto start = Clock::now();
    id = std::max(0, session_.decode(id, o_.decode_steps - step - 1));
    r.step_ms.push_back(ms_since(start));
  }
  if (!counts) return;
  const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (auto member : {&Rounds::media_ms, &Rounds::answer_ms, &Rounds::step_ms, &Rounds::read_rate,
                      &Rounds::product_rate, &Rounds::own_product_rate}) {
    append(r_.*member, r.*member);
  }
  append(times_.vision_ms, prompt_times.vision_ms);
  append(times_.prefill_ms, prompt_times.prefill_ms);
}

void Bencher::time_first_use(int round) {
  const auto first_more_than_next = [&](const Request& request) {
    const double first = answer(request).all_ms;
    return first - answer(request).all_ms;
  };
  r_.new_length_ms.push_back(first_more_than_next(questions_.ask(round * 3)));
  constexpr int kColumns = 64;
  if (o_.image.empty() && o_.width > round * kColumns) {
    r_.new_size_ms.push_back(first_more_than_next(questions_.ask(0, round * kColumns)));
  }
}

void Bencher::time_caps() {
  for (const char* cap : {"1000000", "500000", "250000"}) {
    const PromptBuilder prompts = prompts_of(cap);
    const Prompt prompt = prompts.build(questions_.ask());
    PromptTimes times, warm_up;
    time_prompt(session_, prompt, warm_up);
    for (int round = 0; round < o_.rounds; ++round) time_prompt(session_, prompt, times);
    const std::string at = fmt::format(" at {} pixels, {} patches, {} tokens", cap, prompt.patches, prompt.ids.size());
    more_.push_back(vision_figure("vision" + at, prompt, times));
    more_.push_back(prefill_figure("prefill" + at, prompt, times.prefill_ms));
    if (o_.engine.prefill_graph) time_recorded_prefill(at, prompt);
  }
}

void Bencher::time_recorded_prefill(const std::string& at, const Prompt& prompt) {
  RunnerShape shape = model_.step_shape;
  shape.recorded_extends = kRecordedExtends;
  Decoder& decoder = *model_.decoder;
  const auto runner = make_runner(
      o_.engine, *model_.backend, [&](const Step& step) { return decoder.forward(step); }, shape);
  Session session = session_of(*runner);
  PromptTimes times, warm_up;
  time_prompt(session, prompt, warm_up);
  if (runner->recordings().captured == 0) return;
  for (int round = 0; round < o_.rounds; ++round) time_prompt(session, prompt, times);
  more_.push_back(prefill_figure("prefill, recorded" + at, prompt, times.prefill_ms));
  more_.push_back(figure("prefill, recorded, the first" + at, "ms", warm_up.prefill_ms));
}

BenchFigure Bencher::vision_figure(const std::string& name, const Prompt& prompt, const PromptTimes& times) const {
  const double operations = vision_operations(c_.vision, prompt.media[0].grid);
  return figure(name, "ms", times.vision_ms, "product",
                share_of(operations / median(times.vision_ms) * 1000, median(r_.product_rate)));
}

BenchFigure Bencher::prefill_figure(const std::string& name, const Prompt& prompt,
                                    const std::vector<double>& ms) const {
  const double operations = prefill_operations(c_.text, static_cast<double>(prompt.ids.size()));
  return figure(name, "ms", ms, "product", share_of(operations / median(ms) * 1000, median(r_.product_rate)));
}

BenchReport Bencher::report() const {
  const double read = median(r_.read_rate), product = median(r_.product_rate), own = median(r_.own_product_rate);
  const double tokens = static_cast<double>(prompt_.ids.size());
  std::vector<std::string> notes = model_.info.notes;
  for (std::string& note : model_.backend->notes()) notes.push_back(std::move(note));
  const Runner::Recordings recorded = model_.runner->recordings();
  if (recorded.captured > 0) {
    notes.push_back(fmt::format("{} recorded, {} KiB of device memory", recorded.captured, recorded.bytes >> 10));
  }
  BenchReport report{model_.info.device,
                     std::move(notes),
                     c_.model_type,
                     static_cast<int>(prompt_.patches),
                     static_cast<int>(tokens),
                     {}};
  const double step_bytes = decode_bytes(c_, o_.engine, model_.backend->kv_type(), tokens + o_.decode_steps / 2.0);
  std::vector<double> rates;
  rates.reserve(r_.step_ms.size());
  for (double ms : r_.step_ms) rates.push_back(1000 / ms);
  auto& figures = report.figures;
  figures = {figure("read", "GB/s", scaled(r_.read_rate, 1e-9)),
             figure("product", "GFLOP/s", scaled(r_.product_rate, 1e-9))};
  if (own > 0) {
    figures.push_back(
        figure("product, own kernel", "GFLOP/s", scaled(r_.own_product_rate, 1e-9), "product", share_of(own, product)));
  }
  figures.push_back(figure("load", "ms", {load_ms_}));
  figures.push_back(figure("picture to patches", "ms", r_.media_ms));
  figures.push_back(vision_figure("vision", prompt_, times_));
  figures.push_back(prefill_figure("prefill", prompt_, times_.prefill_ms));
  figures.push_back(figure("picture to first id", "ms", r_.answer_ms));
  figures.push_back(figure("decode", "tokens/s", rates, "read", share_of(step_bytes * median(rates), read)));
  if (!r_.new_length_ms.empty()) figures.push_back(figure("new length, extra", "ms", r_.new_length_ms));
  if (!r_.new_size_ms.empty()) figures.push_back(figure("new size, extra", "ms", r_.new_size_ms));
  figures.insert(figures.end(), more_.begin(), more_.end());
  return report;
}

BenchReport Bencher::run(const OnStage& on_stage) {
  const auto tell = [&](const char* stage, int64_t done, int64_t total) {
    if (on_stage) on_stage(stage, done, total);
  };
  for (int round = 0; round <= o_.rounds; ++round) {
    tell("timing", round, o_.rounds + 1);
    if (round == 1) model_.backend->mark_timed(true);
    time_round(round > 0);
  }
  model_.backend->mark_timed(false);
  for (int round = 1; o_.first_use && round <= o_.rounds; ++round) {
    tell("timing first use", round - 1, o_.rounds);
    time_first_use(round);
  }
  if (o_.caps) {
    tell("timing smaller pictures", 0, 1);
    time_caps();
  }
  if (o_.engine.prefill_graph) time_recorded_prefill("", prompt_);
  if (o_.profile) {
    for (BenchFigure& f : profile(model_, prompt_, o_.rounds, std::min(o_.decode_steps, 8)))
      more_.push_back(std::move(f));
  }
  return report();
}

}  // namespace

DecodeLimit decode_limit(const Options& options, int64_t tokens) {
  const ModelFiles files = open_model(options.checkpoint, options.hub_cache);
  std::vector<std::string> notes;
  const auto backend = make_backend(options, notes);
  return {.read_rate = backend->measure_read_rate(),
          .step_bytes = decode_bytes(files.config, options, backend->kv_type(), static_cast<double>(tokens))};
}

BenchReport bench(const BenchOptions& o, const OnStage& on_stage) {
  validate(o.engine);
  if (o.width < 1 || o.height < 1 || o.decode_steps < 1 || o.rounds < 1) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("a picture of {}x{}, {} decode steps and {} rounds cannot be timed: each must be at least 1",
                    o.width, o.height, o.decode_steps, o.rounds));
  }
  return Bencher(o).run(on_stage);
}

}  // namespace vireo
