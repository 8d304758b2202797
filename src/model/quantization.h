// The quantization_config of config.json, read and written.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "files/json.h"
#include "model/config.h"

namespace vireo {

// Of a model of so many layers; `what` names the file. Throws Error(kInput) naming the key and its value.
Quantization read_quantization(const Json& json, int64_t layers, const std::string& what);
Json quantization_json(const Quantization& quantization);

// The quant_method of such a checkpoint.
inline constexpr char kQuantMethod[] = "vireo";

}  // namespace vireo
