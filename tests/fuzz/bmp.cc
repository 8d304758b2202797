// BMP pictures.
// Covers: src/files/bmp.cc
// SPDX-License-Identifier: Apache-2.0
#include "picture_target.h"
