// Where the time of a picture, its prompt and the decode steps after it goes, part by part.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/model.h"
#include "vireo/tools.h"

namespace vireo {

// A figure for each part of vision, prefill and decode: "vision: attention", with its share of all of that phase. Each op waits until it is
// done, and nothing is recorded or runs ahead, so that the sums are more than what the phases take. A second cache and scratch are
// taken for it.
std::vector<BenchFigure> profile(Model& model, const Prompt& prompt, int rounds, int decode_steps);

}  // namespace vireo
