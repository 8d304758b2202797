// TimedBackend: another backend, whose ops each wait until they are done and are timed. The sum is more than what they take one after the
// other: nothing overlaps any more.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "ops/backend.h"

namespace vireo {

// The name of the op, the weights of a product or null, and how long it took.
using OnOp = std::function<void(const char* op, const Linear* weights, double seconds)>;

// `backend` must outlive it; what that one made, such as weights, serves here too.
std::unique_ptr<Backend> make_timed_backend(Backend& backend, OnOp on_op);

}  // namespace vireo
