// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>

#include "engine/model.h"
#include "engine/options.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "engine/stop_filter.h"
#include "vireo/vireo.h"

namespace vireo {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

template <typename Value, typename IsFinite>
bool all_finite(Backend& backend, Tensor t, IsFinite is_finite) {
  std::vector<Value> values(static_cast<size_t>(t.size()));
  backend.download(t, values.data());
  return std::all_of(values.begin(), values.end(), is_finite);
}

bool is_finite(Backend& backend, Tensor t) {
  if (t.dtype == DType::kF32) return all_finite<float>(backend, t, [](float v) { return std::isfinite(v); });
  if (t.dtype == DType::kBF16) return all_finite<bf16>(backend, t, [](bf16 v) { return std::isfinite(to_float(v)); });
  return true;
}

}  // namespace

const char* version() {
  return "0.1.0";
}

struct Engine::Impl {
  Impl(const Options& options, const Progress& progress, const OnPlan& on_plan)
      : options(options),
        model(options, progress, on_plan),
        prompts(model.files.config, model.files.tokenizer, model.files.chat_template, model.files.preprocessor,
                prompt_limits()),
        session(session_parts(*model.runner)) {
    model.backend->set_cancel(&cancelled);
  }

  PromptBuilder::Limits prompt_limits() const {
    return {.max_seq = options.max_seq,
            .max_pixels = options.max_pixels,
            .auto_cap = kAutoPixels,
            .rules = options.pixels == "reference" ? PixelRules::kReference : PixelRules::kDefault,
            .threads = options.threads};
  }

  Session::Parts session_parts(Runner& runner) {
    return {model.files.config,
            *model.backend,
            *model.tower,
            *model.decoder,
            runner,
            images,
            model.step_shape.max_rows,
            [this] { check_cancelled(); }};
  }

  // Consumes a cancellation.
  void check_cancelled() {
    if (cancelled.exchange(false)) throw Error(ErrorKind::kCancelled, "the request was cancelled");
  }

  // Computes what the cache does not hold of the prompt and returns its first token.
  int32_t start(const Prompt& p, const OnStage& on_stage, Answer* answer) {
    const int64_t kept = session.begin(p);
    const auto vision = Clock::now();
    session.encode(p, on_stage);
    const double vision_ms = ms_since(vision);
    const auto prefill = Clock::now();
    const int32_t id = session.extend(p, on_stage);
    if (answer) {
      answer->cached_tokens = static_cast<int>(kept);
      answer->timings.vision_ms = vision_ms;
      answer->timings.prefill_ms = ms_since(prefill);
    }
    return id;
  }

  int32_t decode(int32_t token, int64_t more = 0) {
    const auto start = Clock::now();
    const int32_t id = session.decode(token, more);
    decode_ms.push_back(ms_since(start));
    return id;
  }

  // Runs the conversation again, op by op and with every intermediate looked at, and throws what is known about the first bad
  // one.
  [[noreturn]] void fail_not_finite(const Prompt& p, const std::vector<int32_t>& generated) {
    std::string first;
    const Probe probe = [&](const std::string& name, Tensor t) {
      if (first.empty() && !is_finite(*model.backend, t)) first = name;
    };
    session.reset();  // its place in the cache is written anew
    const auto walker = model.make_walker();
    Session again(session_parts(*walker));
    again.begin(p);
    again.encode(p, {}, &probe);
    struct ProbeScope {
      Decoder& decoder;
      ~ProbeScope() { decoder.set_probe(nullptr); }
    } scope{*model.decoder};
    model.decoder->set_probe(&probe);
    again.extend(p);
    for (size_t i = 0; i < generated.size() && first.empty(); ++i) {
      again.seat(generated[i]);
      again.decode(generated[i]);
    }
    const std::string weight = find_bad_weight(model.files.checkpoint);
    throw Error(ErrorKind::kDevice, fmt::format("the logits are not finite; the first bad tensor is {}{}",
                                                first.empty() ? "not found again" : first,
                                                weight.empty() ? ": please report this checkpoint and prompt"
                                                               : ", and the checkpoint's " + weight +
                                                                     " holds NaN or infinity: download it again"));
  }

  // The token after a step that chose `id` as the largest logit.
  int32_t choose(int32_t id, Sampler& sampler) {
    if (id < 0) return id;
    logits.resize(static_cast<size_t>(session.logits().cols));
    model.backend->download(session.logits(), logits.data());
    return sampler.choose(logits);
  }

  bool is_eos(int32_t id) const {
    const auto& eos = model.files.config.eos_tokens;
    return std::find(eos.begin(), eos.end(), id) != eos.end();
  }

  Answer answer(const Prompt& p, const Request& request, const OnText& on_text, const OnStage& on_stage,
                Clock::time_point begin);

  Options options;
  std::atomic<bool> cancelled{false};
  Model model;
  PromptBuilder prompts;
  ImageCache images{static_cast<uint64_t>(options.image_cache_bytes)};
  Session session;
  Prompt prompt;  // of set_prompt
  bool prefilled = false;
  std::vector<int32_t> forced;  // tokens of decode_step since the prompt
  std::vector<double> decode_ms;
  std::vector<float> logits;
};

Answer Engine::Impl::answer(const Prompt& p, const Request& request, const OnText& on_text, const OnStage& on_stage,
                            Clock::time_point begin) {
  Answer a;
  a.prompt_tokens = static_cast<int>(p.ids.size());
  a.image_tokens = static_cast<int>(p.visual_rows.size());
  a.patches = static_cast<int>(p.patches);
  a.notes = p.notes;
  a.timings.media_ms = ms_since(begin);
  a.finish_reason = "length";
  Detokenizer detokenizer(model.files.tokenizer, true);
  StopFilter filter(request.stop);
  const int32_t vocabulary = model.files.tokenizer.size();
  Sampler sampler(request.sampling, vocabulary, p.ids);
  const bool chosen = model.runner->choose_by(0, {request.sampling, vocabulary, p.ids});
  const auto choice = [&](int32_t id) { return chosen ? id : choose(id, sampler); };
  const auto emit = [&](const std::string& text) {
    a.text += text;
    return text.empty() || !on_text || on_text(text);
  };
  int32_t id = choice(start(p, on_stage, &a));
  a.timings.first_token_ms = ms_since(begin);
  const auto decoding = Clock::now();
  for (;;) {
    if (id < 0) fail_not_finite(p, a.tokens);
    a.tokens.push_back(id);
    const bool ended = !request.ignore_eos && is_eos(id);
    const bool wanted = ended || emit(filter.push(detokenizer.push(id)));
    if (ended || filter.stopped() || !wanted) {
      a.finish_reason = wanted ? "stop" : "cancelled";
      break;
    }
    const int64_t left = request.max_new_tokens - static_cast<int64_t>(a.tokens.size());
    if (left <= 0) break;
    // The runner's choice is already where its next step looks for it.
    if (a.tokens.size() == 1 || !chosen) session.seat(id);
    id = choice(decode(id, chosen ? left - 1 : 0));
  }
  if (a.finish_reason != "cancelled") emit(filter.push(detokenizer.flush()) + filter.flush());
  a.timings.decode_ms = ms_since(decoding);
  a.completion_tokens = static_cast<int>(a.tokens.size());
  a.timings.total_ms = ms_since(begin);
  return a;
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

std::unique_ptr<Engine> Engine::load(const Options& options, const Progress& progress, const OnPlan& on_plan) {
  validate(options);
  const auto start = Clock::now();
  auto impl = std::make_unique<Impl>(options, progress, on_plan);
  impl->model.info.load_ms = ms_since(start);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Answer Engine::generate(const Request& request, const OnText& on_text, const OnStage& on_stage) {
  const auto begin = Clock::now();
  impl_->prompt = {};
  impl_->prefilled = false;
  validate(request.sampling);
  return impl_->answer(impl_->prompts.build(request), request, on_text, on_stage, begin);
}

PromptInfo Engine::set_prompt(const Request& request) {
  impl_->prefilled = false;
  impl_->prompt = impl_->prompts.build(request);
  const Prompt& p = impl_->prompt;
  return {p.ids, p.positions, static_cast<int>(p.visual_rows.size()), static_cast<int>(p.patches)};
}

PromptInfo Engine::set_prompt_text(const std::string& text, const std::string& system) {
  Request request{.max_new_tokens = 1};
  if (!system.empty()) request.messages.push_back({.role = "system", .content = {{.text = system}}});
  request.messages.push_back({.role = "user", .content = {{.text = text}}});
  return set_prompt(request);
}

namespace {

std::vector<float> host_logits(Backend& backend, Tensor logits) {
  std::vector<float> out(static_cast<size_t>(logits.cols));
  backend.download(logits, out.data());
  return out;
}

}  // namespace

std::vector<float> Engine::prefill() {
  Impl& i = *impl_;
  if (i.prompt.ids.empty()) throw Error(ErrorKind::kUsage, "prefill needs a prompt: call set_prompt first");
  i.forced.clear();
  i.session.reset();
  i.model.runner->choose_by(0, {});
  if (i.start(i.prompt, {}, nullptr) < 0) i.fail_not_finite(i.prompt, {});
  i.prefilled = true;
  return host_logits(*i.model.backend, i.session.logits());
}

std::vector<float> Engine::decode_step(int32_t token) {
  Impl& i = *impl_;
  if (!i.prefilled) throw Error(ErrorKind::kUsage, "decode_step needs a prefilled prompt: call prefill first");
  if (token < 0 || token >= i.model.info.vocab_size) {
    throw Error(ErrorKind::kUsage,
                fmt::format("token {} is outside the vocabulary of {}", token, i.model.info.vocab_size));
  }
  if (i.session.length() >= i.options.max_seq) {
    throw Error(ErrorKind::kCapacity,
                fmt::format("the conversation already has max_seq {} tokens: raise --max-seq", i.options.max_seq));
  }
  i.session.seat(token);
  i.forced.push_back(token);
  if (i.decode(token) < 0) i.fail_not_finite(i.prompt, i.forced);
  return host_logits(*i.model.backend, i.session.logits());
}

void Engine::reset() {
  impl_->session.reset();
  impl_->images.clear();
  impl_->prompt = {};
  impl_->prefilled = false;
  impl_->forced.clear();
}

void Engine::set_wq_overrides(const std::map<std::string, std::string>& overrides) {
  Options options = impl_->options;
  options.wq_overrides = overrides;
  validate(options);
  impl_->model.retier(impl_->options, options);
  impl_->options.wq_overrides = overrides;
  reset();
}

void Engine::warmup() {
  std::vector<uint8_t> grey(32 * 32 * 3, 127);
  const Picture picture{.rgb = grey.data(), .width = 32, .height = 32, .stride = 96};
  Request request{.max_new_tokens = 2};
  request.messages.push_back(
      {.role = "user", .content = {{.kind = Part::Kind::kImage, .image = picture}, {.text = "."}}});
  generate(request);
  reset();
}

GraphStats Engine::graph_stats() const {
  const Runner::Recordings r = impl_->model.runner->recordings();
  return {r.captured, static_cast<int>(r.replays), r.bytes};
}

void Engine::clear_graphs() {
  impl_->model.runner->forget_recordings();
}

LatencyStats Engine::latency_stats() const {
  std::vector<double> ms = impl_->decode_ms;
  LatencyStats s;
  if (ms.empty()) return s;
  std::sort(ms.begin(), ms.end());
  s.count = static_cast<int64_t>(ms.size());
  for (double v : ms) s.mean += v / static_cast<double>(ms.size());
  s.min = ms.front();
  s.max = ms.back();
  s.p50 = ms[ms.size() / 2];
  s.p95 = ms[std::min(ms.size() - 1, ms.size() * 95 / 100)];
  return s;
}

ImageCacheStats Engine::image_cache_stats() const {
  return {impl_->images.hits(), impl_->images.misses()};
}

void Engine::cancel() noexcept {
  impl_->cancelled = true;
}

std::vector<int32_t> Engine::tokenize(const std::string& text) const {
  return impl_->model.files.tokenizer.encode(text, Tokenizer::Added::kNone);
}

const ModelInfo& Engine::info() const {
  return impl_->model.info;
}

}  // namespace vireo
