// The small JSON files of a published checkpoint, in the spelling of transformers 4.57.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "model/config.h"

namespace vireo {

std::string published_config_json(const ModelConfig& config);
// Those of the Instruct models.
std::string published_generation_config_json(const ModelConfig& config);
std::string published_preprocessor_config_json(const VisionConfig& vision);
std::string published_video_preprocessor_config_json(const VisionConfig& vision);

}  // namespace vireo
