// WebP: alpha, animations, and damage.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <webp/encode.h>

#include "files/image_test_util.h"
#include "files/test_files.h"

namespace vireo {
namespace {

using std::string_literals::operator""s;

// A lossless file of RGBA pixels.
std::string make_webp(int width, int height, const Pixels& rgba) {
  uint8_t* out = nullptr;
  const size_t size = WebPEncodeLosslessRGBA(rgba.data(), width, height, 4 * width, &out);
  const std::string bytes(reinterpret_cast<char*>(out), size);
  WebPFree(out);
  return bytes;
}

std::string le24(uint32_t v) {
  return le32(v).substr(0, 3);
}

// An animation whose frames are whole files of the canvas' size.
std::string make_animation(int width, int height, const std::vector<std::string>& frames) {
  std::string body =
      "WEBPVP8X" + le32(10) + "\x12\0\0\0"s + le24(width - 1) + le24(height - 1) + "ANIM" + le32(6) + le32(0) + le16(0);
  for (const std::string& frame : frames) {
    const std::string data =
        le24(0) + le24(0) + le24(width - 1) + le24(height - 1) + le24(100) + "\0"s + frame.substr(12);
    body += "ANMF" + le32(data.size()) + data;
  }
  return "RIFF" + le32(body.size()) + body;
}

const Pixels kTwo = {10, 20, 30, 255, 40, 50, 60, 51};

TEST(WebP, AlphaOverWhiteOrDropped) {
  const std::string webp = make_webp(2, 1, kTwo);
  EXPECT_EQ(decode(webp, PixelRules::kDefault).pixels, (Pixels{10, 20, 30, 212, 214, 216}));
  EXPECT_EQ(decode(webp, PixelRules::kReference).pixels, (Pixels{10, 20, 30, 40, 50, 60}));
}

TEST(WebP, AnimationGivesItsFirstFrame) {
  const std::string first = make_webp(2, 1, kTwo), second = make_webp(2, 1, Pixels(8, 77));
  const std::string animation = make_animation(2, 1, {first, second});
  EXPECT_EQ(decode(animation, PixelRules::kDefault).pixels, (Pixels{10, 20, 30, 212, 214, 216}));
  EXPECT_EQ(decode(animation, PixelRules::kReference).pixels, (Pixels{10, 20, 30, 40, 50, 60}));
  EXPECT_EQ(image_size(view(animation), "x").width, 2);
  EXPECT_EQ(error_of([&] {
              decode(animation.substr(0, animation.size() - 9));
            }).rfind("kInput: x.img cannot be decoded as WebP", 0),
            0u);
}

TEST(WebP, TruncatedFilesAreRefused) {
  for (const char* file : {"webp_lossy_130x110.webp", "webp_lossless_130x110.webp"}) {
    const std::string whole = stored_picture(file);
    for (size_t n : {size_t{16}, whole.size() / 2, whole.size() * 9 / 10})
      EXPECT_EQ(error_of([&] { decode(whole.substr(0, n)); }).rfind("kInput: x.img cannot be decoded as WebP", 0), 0u)
          << file << " " << n;
  }
}

}  // namespace
}  // namespace vireo
