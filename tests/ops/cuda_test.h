// What tests on a CUDA device share. Their program has a main of its own: --kernels=87 runs the compute_87 code, translated for
// the device by its driver; --many-launches has recorded steps of one row be launches of their own for each op;
// --own-products leaves the vendor's library out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "ops/backend.h"

namespace vireo::testing_cuda {

// Why the driver shows no device; empty where there is one.
std::string why_no_device();
// As the command line says.
std::unique_ptr<Backend> make_backend();

// A fixture whose tests are skipped where there is no device.
template <typename Fixture = testing::Test>
class OnDevice : public Fixture {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_device(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

}  // namespace vireo::testing_cuda
