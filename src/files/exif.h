// The one EXIF tag that matters here, Orientation, and what it does to a picture.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "files/image_file.h"

namespace vireo {

// The orientation, 1 to 8, in the first directory of a TIFF structure; 1 when it is missing or damaged.
int exif_orientation(std::span<const uint8_t> tiff);

// 1 none, 2 mirror left-right, 3 turn by 180 degrees, 4 mirror top-bottom, 5 transpose, 6 turn clockwise, 7
// transpose over the other diagonal, 8 turn counter-clockwise.
RgbImage apply_orientation(RgbImage image, int orientation);
ImageSize apply_orientation(ImageSize size, int orientation);

}  // namespace vireo
