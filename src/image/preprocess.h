// From RGB pictures and clips to the patches of the vision tower: the size rule, the resize, the patch order
// and the grid, exactly as the reference processor makes them (Qwen2VLImageProcessorFast and
// Qwen3VLVideoProcessor). SPDX-License-Identifier: Apache-2.0
#pragma once

#include "image/patches.h"
#include "image/preprocessor_config.h"
#include "image/resize.h"
#include "image/smart_resize.h"
