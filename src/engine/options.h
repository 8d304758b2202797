// Values of Options that need parsing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/config.h"
#include "ops/tier.h"
#include "vireo/vireo.h"

namespace vireo {

// Pixels per picture that "auto" never exceeds, as the tower's time grows with their square.
inline constexpr int64_t kAutoPixels = 1'000'000;

// Nothing for "auto" and "none". Throws Error(kUsage).
std::optional<int64_t> parse_max_pixels(const std::string& value);

// Of options that passed validate, for a model.
TierPlan tier_plan(const Options& options, const ModelConfig& config);
KvMode kv_mode(const Options& options);
// Throws Error(kUsage) for an override, of those that passed validate, whose layer a model of `layers` layers does not have.
void validate_layers(const Options& options, int64_t layers);

// Throws Error(kUsage) naming the value and its range.
void validate(const Sampling& sampling);

}  // namespace vireo
