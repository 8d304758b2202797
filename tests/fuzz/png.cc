// PNG pictures.
// Covers: src/files/png.cc
// SPDX-License-Identifier: Apache-2.0
#include "picture_target.h"
