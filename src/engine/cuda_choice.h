// CUDA as the choice of backend sees it. CMake takes backends_cuda.cc for a build that has the backend, and
// backends_no_cuda.cc for one that has not.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/runner.h"
#include "vireo/tools.h"
#include "vireo/vireo.h"

namespace vireo::cuda_choice {

bool is_built();

// Device `index`, as the CUDA runtime counts, with what the options say of the GPU. Throws Error.
std::unique_ptr<Backend> make(int index, const Options& options);
// The first device that this build has kernels for. Null when there is none, and `reason` says why: empty where CUDA is not
// built, which is nothing to remark on.
std::unique_ptr<Backend> make_first(const Options& options, std::string& reason);
// What such a backend goes without, in one line; empty: nothing.
std::string shortfall(Backend& backend);
// Replays a recorded step; for a backend that one of these made.
std::unique_ptr<Runner> make_graph_runner(Backend& backend, Forward forward, const RunnerShape& shape);

// What doctor() says of CUDA: the kernels of this build and each device.
std::vector<Finding> findings();

}  // namespace vireo::cuda_choice
