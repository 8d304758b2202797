// Is this tokenizer.json the byte-level BPE that is implemented?
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "text/tokenizer_file.h"

namespace vireo {

// Checks type and options of model, normalizer, pre-tokenizer, post-processor and decoder; not the tables.
// Throws Error(kInput) naming the first difference.
void check_pipeline(const TokenizerFile& file);

}  // namespace vireo
