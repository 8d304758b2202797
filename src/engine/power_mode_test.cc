// nvpmodel's two files, as a Jetson Orin has them and as nobody should.
// SPDX-License-Identifier: Apache-2.0
#include "engine/power_mode.h"

#include <gtest/gtest.h>

#include "files/test_files.h"

namespace vireo {
namespace {

constexpr const char* kConfiguration = R"(# NVPMODEL CONFIGURATION
< PARAM TYPE=FILE NAME=CPU_ONLINE >
CORE_0 /sys/devices/system/cpu/cpu0/online
< POWER_MODEL ID=0 NAME=MAXN >
CPU_ONLINE CORE_0 1
< POWER_MODEL ID=2 NAME=MODE_30W>
< PM_CONFIG DEFAULT=2 >
)";

// "level text", or nothing.
std::string found(const std::string& configuration, const std::string& status) {
  const TempFolder folder;
  const auto finding = power_mode(folder.write("nvpmodel.conf", configuration), folder.write("status", status));
  if (!finding) return "";
  EXPECT_EQ(finding->subject, "power");
  return (finding->level == Finding::Level::kOk ? "ok " : "note ") + finding->text;
}

TEST(PowerMode, NamesTheModeAndTheWayToFullSpeed) {
  EXPECT_EQ(found(kConfiguration, "pmode:0000\n"), "ok mode 0 (MAXN)");
  EXPECT_EQ(found(kConfiguration, "pmode:0002 fmode:quiet\n"),
            "note mode 2 (MODE_30W); sudo nvpmodel -m 0 lifts the limits (MAXN)");
}

TEST(PowerMode, SaysNothingOfWhatItCannotRead) {
  EXPECT_EQ(found(kConfiguration, ""), "");
  EXPECT_EQ(found(kConfiguration, "pmode:\n"), "");
  EXPECT_EQ(found(kConfiguration, "pmode:0007\n"), "");
  EXPECT_EQ(found("< POWER_MODEL ID= NAME=MAXN >\n", "pmode:0000\n"), "");
  EXPECT_FALSE(power_mode("/no/such/file", "/no/such/file"));
}

}  // namespace
}  // namespace vireo
