// The examples of FIPS 180-4, and lengths around the padding.
// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/sha256_blocks.h"

namespace vireo {
namespace {

TEST(Sha256, KnownDigests) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, LengthsAroundThePadding) {
  EXPECT_EQ(sha256_hex(std::string(55, '\xff')), "aadaed00a3c5fbb8072ae7f1984ba8199fbe5272de427d11eaf31583af37db51");
  EXPECT_EQ(sha256_hex(std::string(56, '\xff')), "528ff50ab05e77bbbd224a9ec86165dbb6824a9a9efb544be0a1d57d5b416457");
  EXPECT_EQ(sha256_hex(std::string(63, '\xff')), "d12449c8124182545ae91924286cc6af13528bcf62a5ddbd5e00b891fffc1b48");
  EXPECT_EQ(sha256_hex(std::string(64, '\xff')), "8667e718294e9e0df1d30600ba3eeb201f764aad2dad72748643e4a285e1d1f7");
  EXPECT_EQ(sha256_hex(std::string(119, '\xff')), "b863f94597d433ef2280e3b4656f13ea265a79bb8047287321c218905b03c99b");
  EXPECT_EQ(sha256_hex(std::string(120, '\xff')), "9088fee917e5a748c2f0b4f5458c1cbdabbd696291c69be6e605bae0ef779e8f");
}

// One digest over those of all lengths up to 300, from Python's hashlib.
TEST(Sha256, EveryLength) {
  std::string digests;
  for (int n = 0; n < 300; ++n) {
    std::string bytes;
    for (int i = 0; i < n; ++i) bytes += static_cast<char>(i * 7 + n);
    digests += sha256_hex(bytes);
  }
  EXPECT_EQ(sha256_hex(digests), "def85da8f53f8ad58eda585dce61c0d7bfbb3da6924badae49d32d11288c576f");
}

// Both ways of adding blocks, where this processor has both.
TEST(Sha256, InstructionsLikePlainCode) {
  const AddSha256Blocks fast = fast_sha256_blocks();
  if (!fast) GTEST_SKIP() << "this processor has no SHA instructions";
  std::vector<unsigned char> blocks(64 * 9);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<unsigned char>(i * i >> 3);
  Sha256State a = {1, 2, 3, 4, 5, 6, 7, 0xffffffff}, b = a;
  fast(a, blocks.data(), 9);
  add_sha256_blocks(b, blocks.data(), 9);
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace vireo
