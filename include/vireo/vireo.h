// Vireo: Qwen3-VL from stock Hugging Face checkpoints. An Engine loads one checkpoint onto one device and answers chat
// requests with text, pictures and clips; everything a front end needs is in this header.
// Errors are vireo::Error (error.h). Nothing here prints, exits or reads the environment.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vireo/error.h"
#include "vireo/sampling.h"

namespace vireo {

const char* version();

struct Options {
  std::string checkpoint;           // a folder, a .safetensors file, or ORG/NAME[@REV] in the local Hugging Face cache
  std::filesystem::path hub_cache;  // that cache's hub folder
  std::string device = "auto";      // auto (a GPU if there is one, else the CPU), cpu, reference, cuda, cuda:N
  int max_seq = 4096;               // prompt and generated tokens of one conversation
  std::string max_pixels = "auto";  // per picture: auto, none (the checkpoint's own limit) or a number
  std::string pixels = "default";   // default, or reference: alpha and 16-bit grey as the reference processor has them
  // Tier that decode steps read the decoder in: bf16, w8, w4, int8, int4, nvfp4, or auto: that of a quantised checkpoint, else bf16.
  std::string weight_mode = "auto";
  std::map<std::string, std::string> wq_overrides;  // projection or L<layer>.<projection> to tier
  // Matrices in a tier have no copy in BF16: prefill reads what their codes stand for. Slower prefill, less memory.
  bool low_memory = false;
  std::string kv_mode = "bf16";  // or int8: keys and values in 8 bits, a scale for each token and head
  int threads = 0;               // 0: every processor this process may use
  std::string isa = "auto";      // instruction set of the CPU kernels
  bool graph = true;             // record a GPU's decode step and replay it; false: walk the model op by op
  bool prefill_graph = false;    // record and replay prefill too, for the latest kinds of prompts
  int kernels = 0;               // of the GPU: 87 for those of compute_87, 0 for the best that were built
  int gemm_candidates = 1;       // algorithms of cuBLASLt among which timing chooses at load; 1: its first choice
  int prefill_chunk = 0;         // rows of one prefill step; 0: 512, or 2048 on a GPU
  int64_t image_cache_bytes = 256 << 20;  // of encoded pictures to remember
};

// Throws Error(kUsage) naming the option, its value and the allowed set. Touches no file and no device.
void validate(const Options& options);

// A picture: the bytes of a PNG, JPEG, WebP, GIF or BMP file, the path of one, or raw 8-bit RGB.
struct Picture {
  std::filesystem::path path;
  std::vector<std::byte> bytes;
  // Raw frame: rows of `stride` bytes, 3 bytes a pixel; must stay valid during the call.
  const uint8_t* rgb = nullptr;
  int width = 0;
  int height = 0;
  int64_t stride = 0;
};

// A clip: its frames, or one animated GIF. Frame k is at k / fps seconds; a GIF brings its own rate unless fps is set.
struct Video {
  std::vector<Picture> frames;
  std::optional<Picture> gif;
  double fps = 0;
  bool sample = false;  // take frames as the checkpoint's video settings say, instead of all
};

struct Part {
  enum class Kind { kText, kImage, kVideo };
  Kind kind = Kind::kText;
  std::string text;
  Picture image;
  Video video;
};

struct Message {
  std::string role;  // system, user, assistant, tool
  std::vector<Part> content;
  std::string tool_calls;                // JSON array as in the OpenAI API; empty: none
  std::optional<std::string> reasoning;  // earlier thinking of an assistant message
};

struct Request {
  std::vector<Message> messages;
  std::string tools;  // JSON array of function schemas; empty: none
  int max_new_tokens = 256;
  bool add_vision_id = false;  // "Picture 1: " before each picture
  bool ignore_eos = false;     // always generate max_new_tokens, for timing
  Sampling sampling;
  std::vector<std::string> stop;  // texts that end the answer and are not shown
};

// Chat messages from JSON: an array, or an object with `messages` (and perhaps `tools`), with Hugging Face parts
// ({"type":"image","image":PATH}, {"type":"video","video":[PATHS] or PATH,"fps":2}) or OpenAI parts (image_url with a path
// or a data: URI). Paths are relative to `folder`. Throws Error(kInput) naming the message, the part and the key.
Request parse_messages(std::string_view json, const std::filesystem::path& folder);

struct Timings {
  double media_ms = 0;   // decoding and resizing pictures
  double vision_ms = 0;  // the vision tower
  double prefill_ms = 0;
  double decode_ms = 0;       // all steps after the first token
  double first_token_ms = 0;  // from the request to the first token
  double total_ms = 0;
};

struct Answer {
  std::string text;             // cut at the end of the answer, special tokens not shown
  std::vector<int32_t> tokens;  // as generated, with the closing one
  int prompt_tokens = 0;
  int image_tokens = 0;   // of prompt_tokens
  int cached_tokens = 0;  // of prompt_tokens: kept from the conversation before, not computed again
  int patches = 0;        // patches that went through the vision tower
  int completion_tokens = 0;
  std::string finish_reason;       // stop, length, cancelled
  std::vector<std::string> notes;  // one line each for what the user should know, e.g. that pictures were made smaller
  Timings timings;
};

struct ModelInfo {
  std::string model_type;
  std::string device;  // "cpu (avx2, 2 threads)"
  int max_seq = 0;
  int vocab_size = 0;
  std::vector<int32_t> eos_tokens;
  double load_ms = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t scratch_bytes = 0;               // of a prefill step, of the largest picture and of decode steps
  uint64_t picture_bytes = 0;               // of encoded pictures: those of one prompt and those that are remembered
  uint64_t recording_bytes = 0;             // of recorded steps
  std::optional<uint64_t> available_bytes;  // of the device's memory before loading; nothing where it is not known
  std::vector<std::string> notes;           // one line each for what the user should know, e.g. why no GPU is used
};

struct GraphStats {
  int captured = 0;
  int replays = 0;
  uint64_t bytes = 0;  // of the GPU's memory, as far as other programs left it alone meanwhile
};

// Of the decode steps since the engine was loaded, in milliseconds.
struct LatencyStats {
  int64_t count = 0;
  double mean = 0, min = 0, max = 0, p50 = 0, p95 = 0;
};

// Pictures that were remembered, or had to be encoded, since the engine was loaded.
struct ImageCacheStats {
  int64_t hits = 0;
  int64_t misses = 0;
};

struct PromptInfo {
  std::vector<int32_t> ids;
  std::vector<std::array<int32_t, 3>> positions;  // t, h, w
  int image_tokens = 0;
  int patches = 0;
};

// Called while weights are loaded, with bytes done and in all.
using Progress = std::function<void(uint64_t done, uint64_t total)>;
// Called once before weights are loaded, with all of the info but load_ms.
using OnPlan = std::function<void(const ModelInfo& plan)>;
// Called during the slow parts of a request ("vision": blocks done, "prefill": tokens done).
using OnStage = std::function<void(const char* stage, int64_t done, int64_t total)>;
// Called with each piece of text as it is completed, always whole characters. Returning false stops the answer.
using OnText = std::function<bool(std::string_view text)>;

// Not thread-safe but for cancel(): one thread uses an Engine at a time.
class Engine {
 public:
  // Throws Error(kUsage) for a bad option before anything is touched; then kNotFound, kInput or kCapacity.
  static std::unique_ptr<Engine> load(const Options& options, const Progress& progress = {},
                                      const OnPlan& on_plan = {});
  ~Engine();

  // Throws Error naming the request's fault; the engine stays usable. A prompt that begins like the conversation before (its
  // answer included) computes only what is new, and a picture that is remembered is not encoded again.
  Answer generate(const Request& request, const OnText& on_text = {}, const OnStage& on_stage = {});

  // Step by step: a prompt, its prefill, then tokens of the caller's choice. The returned logits (vocab_size of them) are those of the
  // last row.
  PromptInfo set_prompt(const Request& request);
  PromptInfo set_prompt_text(const std::string& text, const std::string& system = "");
  std::vector<float> prefill();
  std::vector<float> decode_step(int32_t token);
  // Forgets the conversation and all pictures.
  void reset();
  // Options::wq_overrides from here on, beside the same weight_mode: reads again those matrices whose tier changes. Forgets the
  // conversation and what was recorded. Throws Error, changing nothing: kUsage where load would refuse them, kCapacity where they do not
  // fit.
  void set_wq_overrides(const std::map<std::string, std::string>& overrides);
  // Runs every path once, so that the first request finds memory mapped and code warm.
  void warmup();

  GraphStats graph_stats() const;
  void clear_graphs();
  LatencyStats latency_stats() const;
  ImageCacheStats image_cache_stats() const;

  // From any thread, and from a signal handler: ends the request that is running (else the next one) within a
  // fraction of a second.
  void cancel() noexcept;

  std::vector<int32_t> tokenize(const std::string& text) const;
  const ModelInfo& info() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace vireo
