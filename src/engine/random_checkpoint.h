// The folder of a random checkpoint, for any config: write_random_checkpoint (vireo/tools.h) with the sizes as a parameter,
// so that tests can write small ones.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/config.h"
#include "vireo/tools.h"

namespace vireo {

void write_random_checkpoint(const ModelConfig& config, const RandomCheckpoint& options, const Progress& progress);

}  // namespace vireo
