// The resampling filter of the reference processor.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/thread_pool.h"
#include "files/image_file.h"
#include "image/smart_resize.h"

namespace vireo {

// Bicubic with antialias in 8 bits, horizontal pass first, 16-bit weights (torchvision's CPU kernel): bit
// exact.
RgbImage resize(const RgbImage& image, Size target, ThreadPool& pool);
RgbImage resize(const RgbImage& image, Size target);

}  // namespace vireo
