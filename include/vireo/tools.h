// For programs about models and machines: what a checkpoint holds, what a picture or a text becomes, what this machine can do.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "vireo/vireo.h"

namespace vireo {

struct TensorInfo {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string file;
  std::string shown_name;  // fit for a terminal, as `shown_file` is: control characters as \xNN
  std::string shown_file;
};

// Those matrices of a projection that a checkpoint has in one tier.
struct StoredTier {
  std::string projection;
  std::string tier;
  int matrices = 0;    // one a layer, of qkv_proj three and of gate_up two; of experts one each
  uint64_t bytes = 0;  // codes and scales, or BF16
};

struct CheckpointInfo {
  std::filesystem::path folder;
  std::string model_type;
  std::string config;  // JSON: every size the engine reads
  std::vector<TensorInfo> tensors;
  int64_t text_parameters = 0;
  int64_t vision_parameters = 0;
  uint64_t tensor_bytes = 0;
  std::string chat_template;       // its style
  std::string chat_template_note;  // empty for a known template
  int64_t min_pixels = 0;
  int64_t max_pixels = 0;
  std::vector<int32_t> eos_tokens;
  uint64_t kv_bytes_per_token = 0;
  // Bytes of the weights by tier, as they would lie in memory: of the others without their BF16 (Options::low_memory).
  std::vector<std::pair<std::string, uint64_t>> weight_bytes;
  std::vector<StoredTier> tiers;  // of a checkpoint that Vireo quantised; empty: it is not
  bool keeps_bf16 = false;        // beside those
  std::string folded_by;          // the name of the conversations that it was calibrated with; empty: it was not
  int64_t folded_conversations = 0;
};

// Reads every header and checks every tensor that the model needs, without a device.
CheckpointInfo inspect_checkpoint(const std::string& checkpoint, const std::filesystem::path& hub_cache);

struct TokenInfo {
  int32_t id = 0;
  std::string text;
};
std::vector<TokenInfo> tokenize(const std::string& checkpoint, const std::filesystem::path& hub_cache,
                                const std::string& text);

struct PictureInfo {
  int width = 0, height = 0;  // after orientation
  int resized_width = 0, resized_height = 0;
  int grid_t = 0, grid_h = 0, grid_w = 0;
  int64_t patches = 0;
  int64_t tokens = 0;
};
// max_pixels as in Options, "auto" being "none" here.
PictureInfo inspect_picture(const std::string& checkpoint, const std::filesystem::path& hub_cache,
                            const std::filesystem::path& picture, const std::string& max_pixels);

// A loadable checkpoint of a published shape with random weights, to measure speed and memory without a download. Its
// tokenizer and its small files are those of the Instruct models; its answers are noise.
struct RandomCheckpoint {
  std::string size;      // 2b, 4b, 8b, 32b, 30b-a3b, 235b-a22b
  uint64_t seed = 0;     // same seed and sizes, same bytes
  int layers = 0;        // of the language model; 0: all
  int vision_depth = 0;  // blocks of the vision tower; 0: all
  std::filesystem::path folder;
  uint64_t max_shard_bytes = 5'000'000'000;  // more than that becomes shards and an index
  int threads = 0;                           // 0: every processor this process may use
};
// The folder appears under its name when it is whole; an earlier output of this function is replaced. Throws Error: kUsage
// for an option or a folder with other files in it, kCapacity for a disk too small, kInput for one that cannot be written.
void write_random_checkpoint(const RandomCheckpoint& options, const Progress& progress = {});

// Conversations that show which inputs of the projections are large.
struct Calibration {
  std::string name;  // of their file, for messages and config.json
  std::vector<Request> requests;
};

// A checkpoint with the decoder's projections in a tier, which every load then uses as they are.
struct Quantize {
  std::string checkpoint;  // in BF16
  std::filesystem::path hub_cache;
  std::string weight_mode = "bf16";                 // as in Options, without auto
  std::map<std::string, std::string> wq_overrides;  // as in Options
  std::filesystem::path folder;                     // empty, or not there
  // Keeps the BF16 weights too: prefill then multiplies by those, and any tier can be loaded. Without, prefill multiplies by what the
  // codes stand for, rounded to BF16.
  bool keep_bf16 = false;
  // Rounds weights so that they make up for each other's errors in the products with the inputs of these conversations, with scales that lose
  // least; those in w4 and int4 have outliers folded into them before. In BF16 the checkpoint computes what it did; a tied head in w4 or int4
  // gets weights of its own. Experts are quantised as without.
  std::optional<Calibration> calibration;
  int threads = 0;  // 0: every processor this process may use
};
// Errors are those of the product: its squares over the product's own, with the calibration's inputs, on some of the rows.
struct CalibratedProjection {
  std::string projection;  // L<layer>.<projection>, or lm_head
  double alpha = 0;        // power of the inputs' magnitudes that factors were searched from; 0: from 1, or none
  double plain_error = 0, error = 0;  // without a calibration, and with it
};
struct QuantizeReport {
  std::filesystem::path folder;
  uint64_t source_bytes = 0;  // of tensors
  uint64_t bytes = 0;
  std::vector<StoredTier> tiers;
  std::vector<CalibratedProjection> calibrated;  // with a calibration
};
// The folder appears under its name when it is whole. Stages, before anything is written: "calibration" (conversations done), "folding"
// (projections done). Throws Error: kUsage for an option, a folder that is not empty, or a checkpoint that is quantised already; kCapacity for
// a disk too small; kInput for a folder that cannot be written, or a conversation, which it names.
QuantizeReport quantize_checkpoint(const Quantize& options, const Progress& progress = {},
                                   const OnStage& on_stage = {});

struct Finding {
  enum class Level { kOk, kNote, kProblem };
  Level level = Level::kOk;
  std::string subject;
  std::string text;
};
// What this build has, what this machine is, what would be used, and what is missing.
std::vector<Finding> doctor();

// What bounds decoding: the bytes a second that the device of `options` reads when it does nothing else, measured now (0: it has
// no such rate), and the bytes that one step reads after `tokens` tokens.
struct DecodeLimit {
  double read_rate = 0;
  double step_bytes = 0;
};
DecodeLimit decode_limit(const Options& options, int64_t tokens);

struct BenchOptions {
  Options engine;
  int width = 864;  // of the picture
  int height = 288;
  std::filesystem::path image;  // instead of a picture of that size
  int decode_steps = 32;
  int rounds = 5;
  // Also what the first prompt of a new length and the first picture of a new size take more than the next.
  bool first_use = false;
  bool profile = false;  // also where the time goes, part by part
  bool caps = false;     // also vision and prefill with the picture at 1,000,000, 500,000 and 250,000 pixels at most
};

// A measured value: the median of the rounds, the least and the largest, and what share it is of `of` (empty: of nothing).
struct BenchFigure {
  std::string name;
  std::string unit;
  double median = 0, least = 0, most = 0;
  std::string of;
  double share = 0;
};

struct BenchReport {
  std::string device;
  std::vector<std::string> notes;  // as in ModelInfo
  std::string model;
  int patches = 0;
  int prompt_tokens = 0;
  std::vector<BenchFigure> figures;
};

// Loads the checkpoint and times its parts on a made-up picture and prompt; every decode step is forced. The denominators
// (read rate, product rate) are measured between the rounds.
BenchReport bench(const BenchOptions& options, const OnStage& on_stage = {});

// How far a tier is from BF16. Logits are compared after decode steps that both models take along the BF16 answer.
struct FidelityOptions {
  Options engine;                 // with a tier, for all projections or some
  std::vector<Request> requests;  // answered greedily; their own sampling does not count
  int steps = 32;                 // of an answer at most
  bool sweep = false;             // also with each projection alone in the tier
};
struct FidelityScore {
  int steps = 0;
  double cosine_mean = 0, cosine_least = 1;  // of the logits
  double agreement = 0;                      // share of the steps with the same likeliest token
  double kl_mean = 0, kl_most = 0;           // divergence of the probabilities, in nats
  int same_texts = 0;                        // conversations with the same answer
};
struct FidelityOfProjection {
  std::string projection;
  FidelityScore score;
};
struct FidelityReport {
  std::string device;
  int conversations = 0;
  FidelityScore score;
  std::vector<FidelityOfProjection> sweep;  // the worst first
  std::string suggestion;                   // of the sweep, as --wq takes it
};
// Loads the checkpoint twice, and once more for each projection of a sweep. Throws Error(kUsage) without a tier or a conversation.
FidelityReport fidelity(const FidelityOptions& options, const OnStage& on_stage = {});

}  // namespace vireo
