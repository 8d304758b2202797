// The choice of backend and runner: with cuda_choice.h, the one place that knows which backends this build has.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/runner.h"
#include "vireo/tools.h"
#include "vireo/vireo.h"

namespace vireo {

// Throw Error(kUsage) for a value that is unknown, or not of this build.
void validate_device(const std::string& device);
void validate_kernels(int kernels);

// Adds to `notes` why `auto` took no GPU where this build could use one.
std::unique_ptr<Backend> make_backend(const Options& options, std::vector<std::string>& notes);
// A recorded step where the backend can replay one and the options let it, else the eager runner.
std::unique_ptr<Runner> make_runner(const Options& options, Backend& backend, Forward forward,
                                    const RunnerShape& shape);
// Rows of one prefill step.
int64_t prefill_rows(const Options& options, const Backend& backend);

// What doctor() says of backends.
std::vector<Finding> backend_findings();

}  // namespace vireo
