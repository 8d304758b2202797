// Prompt: a request as the model reads it. Text is tokenized with its provenance, each media mark becomes as many tokens as its grid
// needs, and every token has its three-axis position.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/media.h"
#include "model/config.h"
#include "model/mrope.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace vireo {

// The tokens of one picture or clip (from its first to behind its last), and what it is: the hash of its patches.
struct MediumSpan {
  std::string key;
  int64_t first_token = 0;
  int64_t end_token = 0;
  bool operator==(const MediumSpan&) const = default;
};

struct Prompt {
  std::vector<int32_t> ids;
  std::vector<Position> positions;
  int32_t next_position = 0;
  std::vector<int32_t> visual_rows;     // token indices, ascending
  std::vector<Patches> media;           // in order of appearance
  std::vector<MediumSpan> media_spans;  // of each of media
  int64_t patches = 0;
  std::vector<std::string> notes;
};

// What turns requests into prompts for one checkpoint.
class PromptBuilder {
 public:
  struct Limits {
    int64_t max_seq = 0;
    std::string max_pixels = "auto";
    int64_t auto_cap = 0;  // pixels per picture that "auto" never exceeds; 0: none
    PixelRules rules = PixelRules::kDefault;
    int threads = 0;  // that resize pictures; 0: as many as there are processors, up to 8
  };
  PromptBuilder(const ModelConfig& config, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                const PreprocessorConfig& preprocessor, const Limits& limits);

  // Throws Error: kUsage for max_new_tokens below 1, kInput for an empty request or a bad picture, kCapacity (with the three
  // numbers) when prompt and answer do not fit in max_seq.
  Prompt build(const Request& request) const;

 private:
  std::vector<int32_t> encode(const std::vector<PromptPiece>& pieces, const std::vector<Medium>& media,
                              const std::vector<Grid>& grids, std::vector<VisualRun>* runs) const;
  std::optional<int64_t> budget(const std::vector<PromptPiece>& pieces, const std::vector<Medium>& media,
                                int max_new_tokens, std::vector<std::string>& notes) const;

  const ModelConfig& config_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& template_;
  const PreprocessorConfig& preprocessor_;
  Limits limits_;
};

// "0.3 seconds" stamps of the temporal patches of a clip.
std::vector<double> time_stamps(const Medium& medium, int temporal_patch_size);

}  // namespace vireo
