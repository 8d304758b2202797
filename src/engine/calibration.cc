// SPDX-License-Identifier: Apache-2.0
#include "engine/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/thread_pool.h"
#include "engine/options.h"
#include "engine/session.h"
#include "model/fold_search.h"

namespace vireo {
namespace {

constexpr int kSteps = 32;              // of an answer, at most
constexpr int64_t kSampledRows = 2048;  // of a projection's inputs, at most
constexpr int kTasksPerThread = 2;      // between two reports of progress

std::string label(const Projection& p) {
  return p.layer < 0 ? p.name : fmt::format("L{}.{}", p.layer, p.name);
}

// By which name a probe sees what a projection reads.
std::string input_name(const Projection& p) {
  return p.layer < 0 ? "lm.norm" : fmt::format("lm.in.{}.{}", p.name, p.layer);
}

// Evenly thinned out rows: of those that have come every stride-th, of which kMost at most fit.
class RowSample {
 public:
  void add(const bf16* row, int64_t cols) {
    if (seen_++ % stride_ != 0) return;
    if (rows_.rows == kMost) thin_out();
    rows_.cols = cols;
    rows_.values.insert(rows_.values.end(), row, row + cols);
    ++rows_.rows;
  }

  InputRows rows() && { return std::move(rows_); }

 private:
  static constexpr int64_t kMost = kSampledRows / 2;  // even, so that the row that comes next is kept

  void thin_out() {
    for (int64_t r = 1; r < kMost / 2; ++r) {
      const bf16* from = rows_.values.data() + 2 * r * rows_.cols;
      std::copy_n(from, rows_.cols, rows_.values.data() + r * rows_.cols);
    }
    rows_.rows = kMost / 2;
    rows_.values.resize(static_cast<size_t>(rows_.rows * rows_.cols));
    stride_ *= 2;
  }

  InputRows rows_;
  int64_t seen_ = 0, stride_ = 1;
};

// What projections read. Rows of prompts and of answers are sampled apart: there are many more of the first, and decode steps are what reads the
// codes.
class Inputs {
 public:
  Inputs(Backend& backend, std::set<std::string> names) : backend_(backend), names_(std::move(names)) {}

  void add(const std::string& name, Tensor t) {
    if (!names_.contains(name)) return;
    std::vector<bf16> values(static_cast<size_t>(t.size()));
    if (t.dtype == DType::kBF16) {
      backend_.download(t, values.data());
    } else {
      CHECK(t.dtype == DType::kF32);
      std::vector<float> wide(values.size());
      backend_.download(t, wide.data());
      std::ranges::transform(wide, values.begin(), to_bf16);
    }
    Samples& samples = samples_[name];
    RowSample& sample = t.rows == 1 ? samples.answers : samples.prompts;
    for (int64_t r = 0; r < t.rows; ++r) sample.add(values.data() + r * t.cols, t.cols);
  }

  // Forgets them.
  InputRows take(const std::string& name) {
    Samples samples = std::move(samples_.extract(name).mapped());
    InputRows rows = std::move(samples.answers).rows();
    const InputRows others = std::move(samples.prompts).rows();
    rows.cols = std::max(rows.cols, others.cols);
    rows.rows += others.rows;
    rows.values.insert(rows.values.end(), others.values.begin(), others.values.end());
    return rows;
  }

 private:
  struct Samples {
    RowSample prompts, answers;
  };

  Backend& backend_;
  const std::set<std::string> names_;
  std::map<std::string, Samples> samples_;
};

// The calibration's requests as prompts, one at a time.
class Prompts {
 public:
  Prompts(const Quantize& o, const ModelFiles& files)
      : calibration_(*o.calibration),
        builder_(
            files.config, files.tokenizer, files.chat_template, files.preprocessor,
            {.max_seq = files.config.text.max_position_embeddings, .auto_cap = kAutoPixels, .threads = o.threads}) {}

  size_t size() const { return calibration_.requests.size(); }

  // Errors of the work name the conversation.
  template <typename Work>
  auto in_conversation(size_t i, Work work) const {
    try {
      return work();
    } catch (const Error& e) {
      throw Error(e.kind(), fmt::format("conversation {} of {}: {}", i + 1, calibration_.name, e.what()));
    }
  }

  Prompt build(size_t i) const {
    Request request = calibration_.requests[i];
    request.max_new_tokens = kSteps;
    return in_conversation(i, [&] { return builder_.build(request); });
  }

  // Tokens of the longest with its answer.
  int64_t longest() const {
    size_t most = 0;
    for (size_t i = 0; i < size(); ++i) most = std::max(most, build(i).ids.size());
    return static_cast<int64_t>(most) + kSteps;
  }

 private:
  const Calibration& calibration_;
  PromptBuilder builder_;
};

Options options_of(const Quantize& o, const Prompts& prompts, const TextConfig& c) {
  return {.checkpoint = o.checkpoint,
          .hub_cache = o.hub_cache,
          .device = "cpu",
          .max_seq = static_cast<int>(std::min(prompts.longest(), c.max_position_embeddings)),
          .weight_mode = "bf16",
          .threads = o.threads};
}

bool is_end(const ModelConfig& config, int32_t token) {
  return std::ranges::find(config.eos_tokens, token) != config.eos_tokens.end();
}

// A greedy answer, of which the model's probe sees what it computes.
void answer(const Prompt& prompt, const ModelConfig& config, Session& session) {
  const auto check = [](int32_t token) {
    if (token >= 0) return token;
    throw Error(ErrorKind::kDevice, "its logits are not finite: does `vireo run` answer it with this checkpoint?");
  };
  session.reset();
  session.begin(prompt);
  session.encode(prompt);
  int32_t token = check(session.extend(prompt));
  for (int step = 1; step < kSteps && !is_end(config, token); ++step) {
    session.seat(token);
    token = check(session.decode(token));
  }
}

std::vector<Projection> calibrated_projections(const ModelConfig& made) {
  std::vector<Projection> all = projections(made.text);
  std::erase_if(all, [&](const Projection& p) { return !is_calibrated(p, made); });
  return all;
}

std::set<std::string> input_names(const ModelConfig& made) {
  std::set<std::string> names;
  for (const Projection& p : calibrated_projections(made)) names.insert(input_name(p));
  return names;
}

Inputs observe(const Quantize& o, const ModelConfig& made, const OnStage& on_stage, Model& model) {
  const Prompts prompts(o, model.files);
  Inputs inputs(*model.backend, input_names(made));
  const Probe probe = [&](const std::string& name, Tensor t) { inputs.add(name, t); };
  model.decoder->set_probe(&probe);
  const auto walker = model.make_walker();
  ImageCache images{static_cast<uint64_t>(Options{}.image_cache_bytes)};
  Session session({model.files.config, *model.backend, *model.tower, *model.decoder, *walker, images,
                   model.step_shape.max_rows, [] {}});
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (on_stage) on_stage("calibration", static_cast<int64_t>(i), static_cast<int64_t>(prompts.size()));
    const Prompt prompt = prompts.build(i);
    prompts.in_conversation(i, [&] { answer(prompt, model.files.config, session); });
  }
  model.decoder->set_probe(nullptr);
  return inputs;
}

// What is known of a projection, and the factors that are searched for.
struct Search {
  Projection projection;
  std::shared_ptr<CalibratedInputs> inputs;
  FoldTask task;
  FoundFold found;
};

std::vector<double> mean_squares(const InputRows& rows) {
  std::vector<double> mean(static_cast<size_t>(rows.cols));
  for (size_t i = 0; i < rows.values.size(); ++i) {
    const double v = to_float(rows.values[i]);
    mean[i % mean.size()] += v * v / static_cast<double>(rows.rows);
  }
  return mean;
}

FoldTask fold_task(const Projection& p, Tier tier, const ModelFiles& source, const InputRows& rows) {
  FoldTask task{.tier = tier, .maker = maker_of(p, source.config.text)};
  for (const ProjectionPart& part : parts_of(p, source.config))
    task.parts.push_back(source.checkpoint.get(part.rows, {part.out, part.in}));
  const Maker& maker = task.maker;
  using Shape = std::vector<int64_t>;
  task.maker_weights = source.checkpoint.get(
      maker.tensor, maker.kind == Maker::Kind::kNorm ? Shape{maker.factors} : Shape{maker.factors, maker.cols});
  task.input_squares = mean_squares(rows);
  return task;
}

std::vector<Search> searches_of(const ModelConfig& made, Inputs inputs) {
  std::vector<Search> searches;
  for (const Projection& p : calibrated_projections(made)) {
    auto of_p = std::make_shared<CalibratedInputs>(inputs.take(input_name(p)), searches.size());
    searches.push_back({p, std::move(of_p), {}, {}});
  }
  return searches;
}

void find_factors(std::vector<Search>& searches, const ModelFiles& source, const ModelConfig& made, int threads,
                  const OnStage& on_stage) {
  std::vector<Search*> tasks;
  for (Search& s : searches) {
    const Tier tier = made.quantization->plan().of(s.projection.layer, s.projection.name);
    if (!is_folded(tier)) continue;
    s.task = fold_task(s.projection, tier, source, s.inputs->rows);
    tasks.push_back(&s);
  }
  ThreadPool pool(threads);
  const size_t batch = static_cast<size_t>(pool.size()) * kTasksPerThread;
  for (size_t first = 0; first < tasks.size(); first += batch) {
    if (on_stage) on_stage("folding", static_cast<int64_t>(first), static_cast<int64_t>(tasks.size()));
    const size_t count = std::min(batch, tasks.size() - first);
    pool.run(static_cast<int64_t>(count), [&](int64_t item, int) {
      Search& s = *tasks[first + static_cast<size_t>(item)];
      s.found = find_fold(s.task);
    });
  }
}

}  // namespace

bool is_calibrated(const Projection& p, const ModelConfig& made) {
  return p.experts == 0 && made.quantization->plan().of(p.layer, p.name) != Tier::kBf16;
}

CalibrationResult calibrate(const Quantize& o, const ModelFiles& source, const ModelConfig& made,
                            const OnStage& on_stage) {
  std::vector<Search> searches;
  {
    Model model(options_of(o, Prompts(o, source), source.config.text), {});
    searches = searches_of(made, observe(o, made, on_stage, model));
  }
  find_factors(searches, source, made, o.threads, on_stage);
  CalibrationResult result;
  for (const Search& s : searches) {
    if (!s.found.exponents.empty()) add_fold(s.projection, made, s.found.exponents, result.folds);
    for (const ProjectionPart& part : parts_of(s.projection, made)) result.inputs[part.rows] = s.inputs;
    result.projections.push_back({label(s.projection), s.found.alpha});
  }
  return result;
}

}  // namespace vireo
