// SPDX-License-Identifier: Apache-2.0
#include "engine/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/thread_pool.h"
#include "engine/options.h"
#include "engine/session.h"
#include "model/fold_search.h"

namespace vireo {
namespace {

constexpr int kSteps = 32;          // of an answer, at most
constexpr int kTasksPerThread = 2;  // between two reports of progress

std::string label(const Projection& p) {
  return p.layer < 0 ? p.name : fmt::format("L{}.{}", p.layer, p.name);
}

// By which name a probe sees what a projection reads.
std::string input_name(const Projection& p) {
  return p.layer < 0 ? "lm.norm" : fmt::format("lm.in.{}.{}", p.name, p.layer);
}

// Sums of squares of the columns of tensors.
class Squares {
 public:
  explicit Squares(Backend& backend) : backend_(backend) {}

  void add(const std::string& name, Tensor t) {
    if (t.dtype == DType::kF32) return add_values<float>(name, t, [](float v) { return double{v}; });
    if (t.dtype == DType::kBF16) add_values<bf16>(name, t, [](bf16 v) { return double{to_float(v)}; });
  }

  std::vector<double> mean(const std::string& name) const {
    std::vector<double> mean = sums_.at(name).squares;
    for (double& v : mean) v /= sums_.at(name).rows;
    return mean;
  }

 private:
  struct Sum {
    std::vector<double> squares;
    double rows = 0;
  };

  template <typename Value, typename ToDouble>
  void add_values(const std::string& name, Tensor t, ToDouble to_double) {
    std::vector<Value> values(static_cast<size_t>(t.size()));
    backend_.download(t, values.data());
    Sum& sum = sums_[name];
    sum.squares.resize(static_cast<size_t>(t.cols), 0);
    sum.rows += static_cast<double>(t.rows);
    for (size_t i = 0; i < values.size(); ++i) {
      const double v = to_double(values[i]);
      sum.squares[i % sum.squares.size()] += v * v;
    }
  }

  Backend& backend_;
  std::map<std::string, Sum> sums_;
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

Squares measure(const Quantize& o, const ModelFiles& files, const OnStage& on_stage, Model& model) {
  const Prompts prompts(o, files);
  Squares squares(*model.backend);
  const Probe probe = [&](const std::string& name, Tensor t) { squares.add(name, t); };
  model.decoder->set_probe(&probe);
  const auto walker = model.make_walker();
  ImageCache images{static_cast<uint64_t>(Options{}.image_cache_bytes)};
  Session session({model.files.config, *model.backend, *model.tower, *model.decoder, *walker, images,
                   model.step_shape.max_rows, [] {}});
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (on_stage) on_stage("calibration", static_cast<int64_t>(i), static_cast<int64_t>(prompts.size()));
    const Prompt prompt = prompts.build(i);
    prompts.in_conversation(i, [&] { answer(prompt, files.config, session); });
  }
  model.decoder->set_probe(nullptr);
  return squares;
}

// What is searched for, and where the result goes.
struct Search {
  Projection projection;
  FoldTask task;
  FoundFold found;
};

Search search_of(const Projection& p, const ModelFiles& source, const ModelConfig& made, const Squares& squares) {
  Search s{p, {.tier = made.quantization->plan().of(p.layer, p.name), .maker = maker_of(p, source.config.text)}, {}};
  for (const ProjectionPart& part : parts_of(p, source.config))
    s.task.parts.push_back(source.checkpoint.get(part.rows, {part.out, part.in}));
  const Maker& maker = s.task.maker;
  using Shape = std::vector<int64_t>;
  s.task.maker_weights = source.checkpoint.get(
      maker.tensor, maker.kind == Maker::Kind::kNorm ? Shape{maker.factors} : Shape{maker.factors, maker.cols});
  s.task.input_squares = squares.mean(input_name(p));
  return s;
}

std::vector<Search> searches_of(const ModelFiles& source, const ModelConfig& made, const Squares& squares) {
  std::vector<Search> searches;
  for (const Projection& p : projections(made.text)) {
    if (p.experts == 0 && has_nibbles(made.quantization->plan().of(p.layer, p.name)))
      searches.push_back(search_of(p, source, made, squares));
  }
  return searches;
}

void run(std::vector<Search>& searches, int threads, const OnStage& on_stage) {
  ThreadPool pool(threads);
  const size_t batch = static_cast<size_t>(pool.size()) * kTasksPerThread;
  for (size_t first = 0; first < searches.size(); first += batch) {
    if (on_stage) on_stage("folding", static_cast<int64_t>(first), static_cast<int64_t>(searches.size()));
    const size_t count = std::min(batch, searches.size() - first);
    pool.run(static_cast<int64_t>(count), [&](int64_t item, int) {
      Search& s = searches[first + static_cast<size_t>(item)];
      s.found = find_fold(s.task);
    });
  }
}

}  // namespace

Folding find_folding(const Quantize& o, const ModelFiles& source, const ModelConfig& made, const OnStage& on_stage) {
  std::vector<Search> searches;
  {
    Model model(options_of(o, Prompts(o, source), source.config.text), {});
    searches = searches_of(source, made, measure(o, source, on_stage, model));
  }
  run(searches, o.threads, on_stage);
  Folding folding;
  for (const Search& s : searches) {
    add_fold(s.projection, made, s.found.exponents, folding.folds);
    for (const ProjectionPart& part : parts_of(s.projection, made)) folding.importance[part.rows] = s.found.importance;
    folding.projections.push_back({label(s.projection), s.found.alpha, s.found.plain_error, s.found.error});
  }
  return folding;
}

}  // namespace vireo
