// The official Qwen3 tokenizer and the Qwen3-VL Instruct chat template, which the program carries in packed form (data/),
// as the files of a checkpoint.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vireo {

// As JSON equal to the official tokenizer.json; 151,643 byte-level BPE tokens and 26 added ones.
std::string qwen3_tokenizer_json();
// tokenizer_config.json with the template in it.
std::string qwen3_tokenizer_config_json();
std::string_view qwen3_vl_instruct_template();

}  // namespace vireo
