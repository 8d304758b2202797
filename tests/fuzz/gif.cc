// GIF pictures and clips.
// Covers: src/files/gif.cc
// SPDX-License-Identifier: Apache-2.0
#include "picture_target.h"
