// Pictures of every format, and of those that are only recognised.
// Covers: src/files/image_file.cc
// SPDX-License-Identifier: Apache-2.0
#include "picture_target.h"
