// The reference backend: every op as plain float32 loops (dot products and sums in double), on the host. It is the
// specification of the ops and the oracle of every test, and is not made to be fast.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "ops/backend.h"

namespace vireo {

std::unique_ptr<Backend> make_reference_backend();

}  // namespace vireo
