// SPDX-License-Identifier: Apache-2.0
#include "engine/stop_filter.h"

#include <gtest/gtest.h>

namespace vireo {
namespace {

TEST(StopFilter, ShowsEverythingWithoutStops) {
  StopFilter f({});
  EXPECT_EQ(f.push("abc"), "abc");
  EXPECT_EQ(f.flush(), "");
}

TEST(StopFilter, NeverLeaksAPrefix) {
  StopFilter f({"END"});
  EXPECT_EQ(f.push("one E"), "one ");
  EXPECT_EQ(f.push("N"), "");
  EXPECT_EQ(f.push("D two"), "");
  EXPECT_TRUE(f.stopped());
  EXPECT_EQ(f.push("three"), "");
  EXPECT_EQ(f.flush(), "");
}

TEST(StopFilter, ReleasesWhatTurnsOutToBeNone) {
  StopFilter f({"END"});
  EXPECT_EQ(f.push("EN"), "");
  EXPECT_EQ(f.push("x"), "ENx");
  EXPECT_EQ(f.push("E"), "");
  EXPECT_EQ(f.flush(), "E");
}

TEST(StopFilter, TheEarliestOfSeveralWins) {
  StopFilter f({"cd", "b"});
  EXPECT_EQ(f.push("abcd"), "a");
  EXPECT_TRUE(f.stopped());
}

TEST(StopFilter, OverlappingBeginnings) {
  StopFilter f({"aab"});
  EXPECT_EQ(f.push("aa"), "");
  EXPECT_EQ(f.push("a"), "a");
  EXPECT_EQ(f.push("b"), "");
  EXPECT_TRUE(f.stopped());
}

}  // namespace
}  // namespace vireo
