// A quantised checkpoint is the source with some tensors replaced by two: it is written file by file, tensor by tensor, a piece of rows
// at a time on every thread.
// SPDX-License-Identifier: Apache-2.0
#include "engine/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "base/thread_pool.h"
#include "engine/calibration.h"
#include "engine/model.h"
#include "engine/options.h"
#include "engine/output_folder.h"
#include "files/json.h"
#include "files/mapped_file.h"
#include "files/output_file.h"
#include "files/quote.h"
#include "files/shard.h"
#include "model/expert_rows.h"
#include "model/quantization.h"
#include "model/rounding_errors.h"
#include "ops/host_memory.h"
#include "ops/reference.h"

namespace vireo {
namespace {

namespace fs = std::filesystem;

constexpr char kCommand[] = "quantize";
constexpr char kMark[] = ".vireo-quantize";  // in a folder that is not whole yet: the next run may remove it
constexpr int64_t kPiece = 1 << 20;          // weights made and written at once by a thread
constexpr int64_t kMeasuredRows = 128;       // of a matrix, whose errors are reported
constexpr int64_t kPiecesPerRun = 32;        // between two reports of progress
constexpr char kEmbedding[] = "model.language_model.embed_tokens.weight", kHead[] = "lm_head.weight";
constexpr uint64_t kHeaders = 8 << 20;  // room for the headers of the files and the index

// What else a checkpoint is made of. Other files stay where they are.
constexpr const char* kSmallFiles[] = {"generation_config.json",
                                       "preprocessor_config.json",
                                       "video_preprocessor_config.json",
                                       "processor_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "chat_template.json",
                                       "chat_template.jinja",
                                       "LICENSE"};

Quantization quantization_of(const TierPlan& plan, const Quantize& o, const ModelFiles& files) {
  const TextConfig& c = files.config.text;
  Quantization q;
  q.keeps_bf16 = o.keep_bf16;
  q.experts_out_in = c.num_experts > 0 && stacks_out_in(files.checkpoint, files.config, 0);
  for (const std::string& name : tier_projections()) q.tiers[name] = plan.of(-1, name);
  for (const Projection& p : projections(c)) {
    const Tier tier = plan.of(p.layer, p.name);
    if (tier != q.tiers.at(p.name)) q.tiers[fmt::format("L{}.{}", p.layer, p.name)] = tier;
  }
  return q;
}

void check_not_quantised(const ModelFiles& files) {
  if (!files.config.quantization) return;
  throw Error(ErrorKind::kUsage, fmt::format("{} is quantised already: name the BF16 checkpoint that it was made of",
                                             path_text(files.folder)));
}

void check_has_tier(const ModelConfig& config) {
  for (const Projection& p : projections(config.text)) {
    if (config.quantization->plan().of(p.layer, p.name) != Tier::kBf16) return;
  }
  throw Error(ErrorKind::kUsage,
              "nothing would be quantised: give --weight-mode w8, w4, int8, int4 or nvfp4, or --wq a projection and a "
              "tier, such as lm_head=w8");
}

void check_calibration(const Quantize& o, const ModelConfig& config) {
  if (!o.calibration) return;
  if (o.calibration->requests.empty()) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{} has no conversation to calibrate by: give a file with some", o.calibration->name));
  }
  const auto all = projections(config.text);
  if (std::ranges::any_of(all, [&](const Projection& p) { return is_calibrated(p, config); })) return;
  throw Error(ErrorKind::kUsage,
              "--calibrate changes nothing of experts, and no other projection would be in a tier: give --weight-mode "
              "or --wq one for others, such as qkv_proj=w4, or leave out --calibrate");
}

// A tied head whose inputs are folded cannot be the embedding any more.
bool keeps_tied_head(const Quantize& o, const ModelConfig& config) {
  return config.tied_head && !(o.calibration && is_folded(config.quantization->plan().of(-1, "lm_head")));
}

// The source, and the config of what is made of it.
struct Job {
  ModelFiles files;
  ModelConfig config;
};

Job open_job(const Quantize& o) {
  Options options;
  options.checkpoint = o.checkpoint;
  options.hub_cache = o.hub_cache;
  options.weight_mode = o.weight_mode;
  options.wq_overrides = o.wq_overrides;
  options.threads = o.threads;
  validate(options);
  Job job{open_model(o.checkpoint, o.hub_cache), {}};
  check_not_quantised(job.files);
  validate_layers(options, job.files.config.text.num_layers);
  job.config = job.files.config;
  job.config.quantization = quantization_of(tier_plan(options, job.files.config), o, job.files);
  check_has_tier(job.config);
  check_calibration(o, job.config);
  job.config.tied_head = keeps_tied_head(o, job.config);
  const auto backend = make_reference_backend();
  load_weights(job.files.checkpoint, job.files.config,
               *backend);  // checks every name and shape; copies next to nothing
  return job;
}

// A part in a tier, and where its rows are.
struct CodedPart : ProjectionPart {
  ExpertRows expert_rows;  // of no expert: the tensor `rows` has them
};

struct Parts {
  std::unordered_map<std::string, CodedPart>
      coded;                                 // by the tensor beside which codes are written: the first with its rows
  std::unordered_set<std::string> left_out;  // tensors with rows that are not kept
};

CodedPart coded_experts(const Job& job, const Projection& p, const ProjectionPart& part, Parts& parts) {
  CodedPart coded{part, expert_rows(job.files.checkpoint, job.files.config, p)};
  for (const auto& expert : coded.expert_rows.experts) {
    for (const HostTensor& t : expert) {
      if (!part.has_rows) parts.left_out.insert(t.name);
    }
  }
  coded.rows = coded.expert_rows.experts[0][0].name;
  return coded;
}

Parts coded_parts(const Job& job) {
  Parts parts;
  for (const Projection& p : projections(job.config.text)) {
    for (const ProjectionPart& part : parts_of(p, job.config)) {
      if (part.tier == Tier::kBf16) continue;
      if (!part.has_rows) parts.left_out.insert(part.rows);
      const CodedPart coded = p.experts > 0 ? coded_experts(job, p, part, parts) : CodedPart{part, {}};
      parts.coded.emplace(coded.rows, coded);
    }
  }
  return parts;
}

// One file: the source's tensors, and what becomes of them in the order of their data.
struct Output {
  Shard shard;
  std::vector<HostTensor> sources;
};

// A tied head that lies in the source too, where the embedding is what counts: its name goes to the codes.
bool is_superseded(const HostTensor& source, const Parts& parts) {
  return std::ranges::any_of(
      parts.coded, [&](const auto& p) { return p.second.codes == source.name && p.second.rows != source.name; });
}

void add_tensor(const HostTensor& source, const Parts& parts, Output& output) {
  if (is_superseded(source, parts)) return;
  output.sources.push_back(source);
  if (!parts.left_out.contains(source.name)) {
    output.shard.tensors.push_back({source.name, source.dtype, source.shape});
  }
  const auto found = parts.coded.find(source.name);
  if (found == parts.coded.end()) return;
  const CodedPart& p = found->second;
  output.shard.tensors.push_back({p.codes, codes_type(p.tier), p.codes_shape()});
  output.shard.tensors.push_back({p.scales, scales_type(p.tier), p.scales_shape()});
  if (p.tier == Tier::kNvfp4) output.shard.tensors.push_back({p.tensor_scale, DType::kF32, p.tensor_scale_shape()});
}

// The files of the source under their names. Wide elements come first, so that all are aligned.
std::vector<Output> plan_files(const Job& job, const Parts& parts) {
  const Checkpoint& checkpoint = job.files.checkpoint;
  const bool unties = job.files.config.tied_head && !job.config.tied_head;
  std::vector<Output> outputs;
  for (const HostTensor& t : checkpoint.tensors()) {
    const std::string file = checkpoint.file_of(t).filename().string();
    if (outputs.empty() || outputs.back().shard.file != file) outputs.push_back({{file, {}}, {}});
    if (unties && t.name == kHead) continue;
    add_tensor(t, parts, outputs.back());
    if (unties && t.name == kEmbedding) add_tensor({kHead, t.dtype, t.shape, t.data}, parts, outputs.back());
  }
  std::erase_if(outputs, [](const Output& output) { return output.shard.tensors.empty(); });
  for (Output& output : outputs) {
    std::ranges::stable_sort(output.shard.tensors, std::greater(),
                             [](const HostTensor& t) { return size_of(t.dtype); });
  }
  return outputs;
}

class Writer {
 public:
  Writer(const Quantize& o, const Parts& parts, const CalibrationResult& calibrated, uint64_t total,
         const Progress& progress)
      : parts_(parts), calibrated_(calibrated), pool_(o.threads), total_(total), progress_(progress) {}

  void write(const fs::path& folder, const Output& output) {
    OutputFile file(folder / output.shard.file);
    const std::string header = shard_header(output.shard);
    file.write(0, header);
    std::map<std::string, uint64_t> offsets;
    uint64_t offset = header.size();
    for (const HostTensor& t : output.shard.tensors) {
      offsets[t.name] = offset;
      offset += t.bytes();
    }
    for (const HostTensor& t : output.sources) {
      if (!parts_.left_out.contains(t.name)) write_rows(file, t, offsets.at(t.name));
      if (const auto part = parts_.coded.find(t.name); part != parts_.coded.end()) {
        part->second.experts > 0 ? quantize_experts(file, part->second, offsets)
                                 : quantize(file, part->second, t, offsets);
      }
      release_pages(t.data, t.bytes());
    }
    file.close();
  }

  // Of a projection of the calibration, on some rows of what was written.
  RoundingErrors errors(size_t projection) const { return errors_.at(projection); }

 private:
  // Calls make(first, count), which returns 0 or errno, for `all` items in pieces, on all threads.
  template <typename Make>
  void in_pieces(const OutputFile& file, int64_t all, int64_t piece, uint64_t bytes_of_one, Make make) {
    for (int64_t run = 0; run < all; run += piece * kPiecesPerRun) {
      const int64_t end = std::min(all, run + piece * kPiecesPerRun);
      std::atomic<int> error{0};
      pool_.run((end - run + piece - 1) / piece, [&](int64_t item, int) {
        const int64_t first = run + item * piece;
        const int result = make(first, std::min(piece, end - first));
        if (result != 0) error = result;
      });
      file.check(error);
      done_ += static_cast<uint64_t>(end - run) * bytes_of_one;
      if (progress_) progress_(done_, total_);
    }
  }

  const Fold* fold_of(const HostTensor& t) const {
    const auto found = calibrated_.folds.find(t.name);
    return found == calibrated_.folds.end() ? nullptr : &found->second;
  }

  // Null: not calibrated.
  const CalibratedInputs* inputs_of(const HostTensor& t) const {
    const auto found = calibrated_.inputs.find(t.name);
    return found == calibrated_.inputs.end() ? nullptr : found->second.get();
  }

  void write_rows(const OutputFile& file, const HostTensor& t, uint64_t offset) {
    const Fold* fold = fold_of(t);
    if (!fold) return copy(file, t, offset);
    const int64_t cols = t.shape.back(), row_bytes = cols * static_cast<int64_t>(sizeof(bf16));
    in_pieces(file, t.size() / cols, rows_at_once(cols), static_cast<uint64_t>(row_bytes),
              [&](int64_t first, int64_t count) {
                const std::vector<bf16> rows = folded(*fold, t, first, count);
                return file.try_write(offset + static_cast<uint64_t>(first * row_bytes), rows.data(),
                                      rows.size() * sizeof(bf16));
              });
  }

  static int64_t rows_at_once(int64_t cols) { return std::max<int64_t>(1, kPiece / cols); }

  static std::vector<bf16> folded(const Fold& fold, const HostTensor& t, int64_t first, int64_t count) {
    const int64_t cols = t.shape.back();
    std::vector<bf16> rows(static_cast<size_t>(count * cols));
    for (int64_t r = 0; r < count; ++r)
      fold_row(fold, first + r, static_cast<const bf16*>(t.data) + (first + r) * cols, cols, rows.data() + r * cols);
    return rows;
  }

  void copy(const OutputFile& file, const HostTensor& t, uint64_t offset) {
    const char* data = static_cast<const char*>(t.data);
    in_pieces(file, static_cast<int64_t>(t.bytes()), kPiece * 2, 1, [&](int64_t first, int64_t count) {
      return file.try_write(offset + static_cast<uint64_t>(first), data + first, static_cast<size_t>(count));
    });
  }

  using Offsets = std::map<std::string, uint64_t>;

  void quantize(const OutputFile& file, const ProjectionPart& p, const HostTensor& t, const Offsets& offsets) {
    const Fold* fold = fold_of(t);
    const RoundedMatrix m = {.tier = p.tier,
                             .rows = static_cast<const bf16*>(t.data),
                             .fold = fold,
                             .plain_tensor_scale = tensor_scale_of(p.tier, static_cast<const bf16*>(t.data), t.size()),
                             .tensor_scale = p.tier == Tier::kNvfp4 ? tensor_scale_of(p.tier, largest(t, fold)) : 1};
    const CalibratedInputs* inputs = inputs_of(t);
    const InputFactor* factor = inputs ? &factor_of(*inputs, fold) : nullptr;
    if (factor) {
      RoundingErrors& errors = errors_[inputs->projection];
      errors = errors + sampled_errors(m, *factor, p.out);
    }
    write_coded(file, p, {m.tensor_scale}, offsets, [&](int64_t first, int64_t count, uint8_t* codes, bf16* scales) {
      const std::vector<bf16> changed = fold ? folded(*fold, t, first, count) : std::vector<bf16>();
      const bf16* rows = fold ? changed.data() : m.rows + first * p.in;
      if (factor) {
        CompensatedRounding(p.tier, *factor, m.tensor_scale).quantize(rows, count, codes, scales);
        return;
      }
      for (int64_t r = 0; r < count; ++r) {
        quantize_row(p.tier, rows + r * p.in, p.in, codes + r * code_bytes(p.tier, p.in),
                     scales + r * tier_groups(p.in), m.tensor_scale);
      }
    });
  }

  // The largest magnitude.
  static bf16 largest(const HostTensor& t, const Fold* fold) {
    if (!fold) return largest_magnitude(static_cast<const bf16*>(t.data), t.size());
    bf16 most;
    for (int64_t r = 0; r < t.shape[0]; ++r) {
      const std::vector<bf16> row = folded(*fold, t, r, 1);
      const bf16 of_row = largest_magnitude(row.data(), t.shape[1]);
      most.bits = std::max(most.bits, of_row.bits);
    }
    return most;
  }

  // Projections whose parts follow each other make one for all.
  const InputFactor& factor_of(const CalibratedInputs& inputs, const Fold* fold) {
    if (factored_ == &inputs) return *factor_;
    factor_.reset();
    factor_ = std::make_unique<InputFactor>(inputs.rows, fold ? fold->cols : std::vector<int8_t>(), pool_);
    factored_ = &inputs;
    return *factor_;
  }

  RoundingErrors sampled_errors(const RoundedMatrix& m, const InputFactor& factor, int64_t rows) {
    std::vector<RoundingErrors> of_rows(static_cast<size_t>(std::min(rows, kMeasuredRows)));
    const auto count = static_cast<int64_t>(of_rows.size());
    pool_.run(count, [&](int64_t item, int) {
      of_rows[static_cast<size_t>(item)] = rounding_errors(m, factor, item * rows / count);
    });
    return std::accumulate(of_rows.begin(), of_rows.end(), RoundingErrors{});
  }

  // As quantising at load does it.
  void quantize_experts(const OutputFile& file, const CodedPart& p, const Offsets& offsets) {
    const ExpertRows& rows = p.expert_rows;
    const auto host = make_host_experts(rows.experts, rows.layout, {.tier = p.tier});
    const auto& experts = host->parts;
    std::vector<float> tensor_scales;
    tensor_scales.reserve(experts.size());
    for (const auto& parts : experts) tensor_scales.push_back(parts[0].tensor_scale);
    write_coded(file, p, tensor_scales, offsets, [&](int64_t first, int64_t count, uint8_t* codes, bf16* scales) {
      for (int64_t r = 0; r < count;) {
        const int64_t expert = (first + r) / p.out, out = (first + r) % p.out, n = std::min(count - r, p.out - out);
        tier_rows(experts[static_cast<size_t>(expert)], p.tier, out, n, codes + r * code_bytes(p.tier, p.in),
                  scales + r * tier_groups(p.in));
        r += n;
      }
    });
    for (const auto& parts : experts) {
      for (const WeightMatrix& m : parts) release_pages(m.data, static_cast<size_t>(m.out * m.in) * sizeof(bf16));
    }
  }

  // make_rows(first, count, codes, scales) makes rows of the matrices, which follow each other.
  template <typename MakeRows>
  void write_coded(const OutputFile& file, const ProjectionPart& p, const std::vector<float>& tensor_scales,
                   const Offsets& offsets, MakeRows make_rows) {
    const int64_t row_codes = code_bytes(p.tier, p.in), row_scales = tier_groups(p.in);
    const int64_t scale_bytes = static_cast<int64_t>(size_of(scales_type(p.tier)));
    const uint64_t codes_at = offsets.at(p.codes), scales_at = offsets.at(p.scales);
    if (p.tier == Tier::kNvfp4) {
      const size_t bytes = tensor_scales.size() * sizeof(float);
      file.check(file.try_write(offsets.at(p.tensor_scale), tensor_scales.data(), bytes));
      done_ += bytes;
    }
    in_pieces(file, p.matrices() * p.out, rows_at_once(p.in),
              static_cast<uint64_t>(row_codes + row_scales * scale_bytes), [&](int64_t first, int64_t count) {
                std::vector<uint8_t> codes(static_cast<size_t>(count * row_codes));
                std::vector<bf16> scales(static_cast<size_t>(count * row_scales));
                make_rows(first, count, codes.data(), scales.data());
                const int error =
                    file.try_write(codes_at + static_cast<uint64_t>(first * row_codes), codes.data(), codes.size());
                if (error != 0) return error;
                const uint64_t at = scales_at + static_cast<uint64_t>(first * row_scales * scale_bytes);
                if (p.tier != Tier::kNvfp4) return file.try_write(at, scales.data(), scales.size() * sizeof(bf16));
                std::vector<uint8_t> narrow;
                narrow.reserve(scales.size());
                for (int64_t i = 0; i < count * row_scales; ++i) {
                  const float tensor_scale = tensor_scales[static_cast<size_t>((first + i / row_scales) / p.out)];
                  narrow.push_back(narrow_scale(scales[static_cast<size_t>(i)], tensor_scale));
                }
                return file.try_write(at, narrow.data(), narrow.size());
              });
  }

  const Parts& parts_;
  const CalibrationResult& calibrated_;
  std::map<size_t, RoundingErrors> errors_;  // by projection
  std::unique_ptr<InputFactor> factor_;
  const CalibratedInputs* factored_ = nullptr;  // of which factor_ is
  ThreadPool pool_;
  uint64_t done_ = 0, total_;
  const Progress& progress_;
};

uint64_t small_bytes(const fs::path& source) {
  uint64_t bytes = kHeaders + fs::file_size(source / "config.json");
  for (const char* name : kSmallFiles) {
    if (fs::is_regular_file(source / name)) bytes += fs::file_size(source / name);
  }
  return bytes;
}

Json folded_json(const Calibration& calibration, const CalibrationResult& calibrated) {
  Json alpha = Json::object();
  for (const CalibratedProjection& p : calibrated.projections) alpha[p.projection] = p.alpha;
  return {{"calibration", fs::path(calibration.name).filename().string()},
          {"conversations", calibration.requests.size()},
          {"alpha", alpha}};
}

void write_small_files(const Quantize& o, const Job& job, const CalibrationResult& calibrated, const fs::path& folder) {
  const fs::path& source = job.files.folder;
  Json config = read_json(source / "config.json");
  if (job.config.tied_head != job.files.config.tied_head) config["tie_word_embeddings"] = job.config.tied_head;
  config["quantization_config"] = quantization_json(*job.config.quantization);
  if (o.calibration) config["quantization_config"]["folded"] = folded_json(*o.calibration, calibrated);
  write_text_file(folder / "config.json", config.dump(2) + "\n");
  for (const char* name : kSmallFiles) {
    if (fs::is_regular_file(source / name)) fs::copy_file(source / name, folder / name);
  }
}

std::vector<Shard> shards_of(const std::vector<Output>& outputs) {
  std::vector<Shard> shards;
  shards.reserve(outputs.size());
  for (const Output& output : outputs) shards.push_back(output.shard);
  return shards;
}

void write_weights(const std::vector<Output>& outputs, const fs::path& folder, Writer& writer) {
  const std::vector<Shard> shards = shards_of(outputs);
  for (const Output& output : outputs) writer.write(folder, output);
  if (shards.size() > 1 || shards[0].file != "model.safetensors")
    write_text_file(folder / "model.safetensors.index.json", shard_index(shards));
}

std::vector<CalibratedProjection> with_errors(std::vector<CalibratedProjection> projections, const Writer& writer) {
  for (size_t i = 0; i < projections.size(); ++i) {
    const RoundingErrors e = writer.errors(i);
    if (!(e.products > 0)) continue;
    projections[i].plain_error = e.plain / e.products;
    projections[i].error = e.compensated / e.products;
  }
  return projections;
}

QuantizeReport write_folder(const Quantize& o, const Progress& progress, const OnStage& on_stage) {
  const fs::path folder = output_path(o.folder);
  const auto never = [](const fs::path&) { return false; };
  check_replaceable(folder, kCommand, never);
  const Job job = open_job(o);
  const Parts parts = coded_parts(job);
  const std::vector<Output> outputs = plan_files(job, parts);
  QuantizeReport report{
      folder, job.files.checkpoint.tensor_bytes(), shard_bytes(shards_of(outputs)), stored_tiers(job.config), {}};
  check_space(folder, report.bytes + small_bytes(job.files.folder));
  const CalibrationResult calibrated =
      o.calibration ? calibrate(o, job.files, job.config, on_stage) : CalibrationResult{};
  PartialFolder partial(folder, kCommand, [](const fs::path& path) { return fs::exists(path / kMark); });
  write_text_file(partial.path() / kMark, "");
  write_small_files(o, job, calibrated, partial.path());
  Writer writer(o, parts, calibrated, report.bytes, progress);
  write_weights(outputs, partial.path(), writer);
  report.calibrated = with_errors(calibrated.projections, writer);
  fs::remove(partial.path() / kMark);
  partial.keep();
  return report;
}

}  // namespace

std::vector<StoredTier> stored_tiers(const ModelConfig& config) {
  std::map<std::pair<size_t, Tier>, StoredTier> tiers;
  if (!config.quantization) return {};
  const auto& names = tier_projections();
  for (const Projection& p : projections(config.text)) {
    const size_t index = static_cast<size_t>(std::find(names.begin(), names.end(), p.name) - names.begin());
    for (const ProjectionPart& part : parts_of(p, config)) {
      StoredTier& t = tiers[{index, part.tier}];
      t.projection = p.name;
      t.tier = tier_name(part.tier);
      t.matrices += static_cast<int>(part.matrices());
      t.bytes += part.tier == Tier::kBf16 ? static_cast<uint64_t>(part.weights()) * sizeof(bf16) : part.coded_bytes();
    }
  }
  std::vector<StoredTier> list;
  list.reserve(tiers.size());
  for (const auto& [key, tier] : tiers) list.push_back(tier);
  return list;
}

QuantizeReport quantize_checkpoint(const Quantize& options, const Progress& progress, const OnStage& on_stage) {
  QuantizeReport report;
  write_output([&] { report = write_folder(options, progress, on_stage); });
  return report;
}

}  // namespace vireo
