// WebP pictures.
// Covers: src/files/webp.cc
// SPDX-License-Identifier: Apache-2.0
#include "picture_target.h"
