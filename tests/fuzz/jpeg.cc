// JPEG pictures.
// Covers: src/files/jpeg.cc src/files/exif.cc
// SPDX-License-Identifier: Apache-2.0
#include "picture_target.h"
