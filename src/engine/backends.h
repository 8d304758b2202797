// The choice of backend: the one place that knows which backends this build has.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "ops/backend.h"
#include "vireo/tools.h"
#include "vireo/vireo.h"

namespace vireo {

// Throws Error(kUsage) for a device that is unknown, or not in this build.
void validate_device(const std::string& device);
std::unique_ptr<Backend> make_backend(const Options& options);

// What doctor() says of backends.
std::vector<Finding> backend_findings();

}  // namespace vireo
