// Every value of Options that is refused, with its sentence; nothing here touches a file.
// SPDX-License-Identifier: Apache-2.0
#include "engine/options.h"

#include <gtest/gtest.h>

#include "engine/cuda_choice.h"
#include "files/test_files.h"
#include "vireo/vireo.h"

namespace vireo {
namespace {

// What validate says of the defaults after `change`.
template <typename Change>
std::string refusal(Change change) {
  Options options{.checkpoint = "/there/is/no/such/folder"};
  change(options);
  return error_of([&] { validate(options); });
}

std::string refused_override(const std::string& key, const std::string& tier = "bf16") {
  return refusal([&](Options& o) { o.wq_overrides = {{key, tier}}; });
}

TEST(Options, DefaultsAndEveryAllowedValuePassWithoutTouchingTheCheckpoint) {
  EXPECT_EQ(refusal([](Options&) {}), "");
  for (const char* device : {"auto", "cpu", "reference"})
    EXPECT_EQ(refusal([&](Options& o) { o.device = device; }), "") << device;
  for (const char* pixels : {"default", "reference"})
    EXPECT_EQ(refusal([&](Options& o) { o.pixels = pixels; }), "") << pixels;
  for (const char* budget : {"auto", "none", "1", "1000000"})
    EXPECT_EQ(refusal([&](Options& o) { o.max_pixels = budget; }), "") << budget;
}

TEST(Options, DeviceNamesTheAllowedSet) {
  const std::string allowed =
      cuda_choice::is_built() ? "auto, cpu, reference, cuda or cuda:N" : "auto, cpu or reference";
  for (const std::string device : {"abacus", "", "cuda0", "CPU"})
    EXPECT_EQ(refusal([&](Options& o) { o.device = device; }),
              "kUsage: --device " + device + " is unknown: use " + allowed);
}

TEST(Options, CudaDevicesAreNumbered) {
  const bool built = cuda_choice::is_built();
  const auto none = [](const std::string& device) {
    return "kUsage: --device " + device + " needs a CUDA build, which this is not: use cpu (or auto)";
  };
  for (const std::string device : {"cuda", "cuda:0", "cuda:7", "cuda:63"})
    EXPECT_EQ(refusal([&](Options& o) { o.device = device; }), built ? "" : none(device));
  for (const std::string device : {"cuda:", "cuda:x", "cuda:-1", "cuda:01", "cuda:1x", "cuda:64", "cuda:99999999999"})
    EXPECT_EQ(
        refusal([&](Options& o) { o.device = device; }),
        built ? "kUsage: --device " + device + " is not a device: write cuda, or cuda:N with a number N from 0 to 63"
              : none(device));
}

TEST(Options, KernelsNameTheAllowedSet) {
  EXPECT_EQ(refusal([](Options& o) { o.kernels = 87; }),
            cuda_choice::is_built() ? "" : "kUsage: --kernels 87 needs a CUDA build, which this is not: leave it out");
  for (int kernels : {-1, 80, 90}) {
    EXPECT_EQ(refusal([&](Options& o) { o.kernels = kernels; }),
              "kUsage: --kernels " + std::to_string(kernels) +
                  " is unknown: use 87 for those of compute_87, or 0 for the best that this build has for the GPU");
  }
}

TEST(Options, OnlyTiersAndModesThatThereAre) {
  for (const std::string tier : {"auto", "bf16", "w8", "w4", "int8", "int4", "nvfp4"})
    EXPECT_EQ(refusal([&](Options& o) { o.weight_mode = tier; }), "");
  EXPECT_EQ(refusal([](Options& o) { o.weight_mode = "fp4"; }),
            "kUsage: --weight-mode fp4 is unknown: use auto, bf16, w8, w4, int8, int4, nvfp4");
  EXPECT_EQ(refusal([](Options& o) { o.weight_mode = "BF16"; }),
            "kUsage: --weight-mode BF16 is unknown: use auto, bf16, w8, w4, int8, int4, nvfp4");
  EXPECT_EQ(refusal([](Options& o) { o.kv_mode = "int8"; }), "");
  EXPECT_EQ(refusal([](Options& o) { o.kv_mode = "w8"; }), "kUsage: --kv-mode w8 is unknown: use bf16, int8");
}

TEST(Options, NumbersHaveBounds) {
  EXPECT_EQ(refusal([](Options& o) { o.max_seq = 1; }),
            "kUsage: --max-seq 1 is too small: it counts prompt and answer tokens, at least 2");
  EXPECT_EQ(refusal([](Options& o) { o.max_seq = 2; }), "");
  EXPECT_EQ(refusal([](Options& o) { o.threads = -1; }),
            "kUsage: --threads -1 is out of range: use 1 to 1024, or 0 for all");
  EXPECT_EQ(refusal([](Options& o) { o.threads = 1025; }),
            "kUsage: --threads 1025 is out of range: use 1 to 1024, or 0 for all");
  EXPECT_EQ(refusal([](Options& o) { o.prefill_chunk = 0; }), "");
  EXPECT_EQ(refusal([](Options& o) { o.gemm_candidates = 100; }), "");
  EXPECT_EQ(refusal([](Options& o) { o.gemm_candidates = 0; }),
            "kUsage: --gemm-candidates 0 is out of range: use 1 (the library's first choice) to 100");
  EXPECT_EQ(refusal([](Options& o) { o.prefill_chunk = -1; }),
            "kUsage: --prefill-chunk -1 is too small: use at least 1, or 0 for what suits the device");
}

TEST(Options, PixelRulesAndBudgets) {
  EXPECT_EQ(refusal([](Options& o) { o.pixels = "exact"; }),
            "kUsage: --pixels exact is unknown: use default or reference");
  for (const std::string value : {"", "lots", "0", "-5", "1e6", "100 ", "+100", "99999999999999999999", "AUTO"})
    EXPECT_EQ(refusal([&](Options& o) { o.max_pixels = value; }),
              "kUsage: --max-pixels " + value + " is not a pixel count: use auto, none or a number such as 1000000");
  EXPECT_EQ(parse_max_pixels("250000"), 250000);
  EXPECT_EQ(parse_max_pixels("auto"), std::nullopt);
  EXPECT_EQ(parse_max_pixels("none"), std::nullopt);
}

TEST(Options, NoCheckpoint) {
  EXPECT_EQ(refusal([](Options& o) { o.checkpoint = ""; }),
            "kUsage: no checkpoint is named: use --checkpoint FOLDER or --checkpoint ORG/NAME");
}

TEST(Options, EveryProjectionMayBeOverridden) {
  for (const char* key : {"qkv_proj", "o_proj", "gate_up", "mlp_down", "lm_head", "L0.qkv_proj", "L12.mlp_down"})
    EXPECT_EQ(refused_override(key), "") << key;
}

TEST(Options, OverridesThatAreRefusedNameTheirKey) {
  const std::string projections = "use one of qkv_proj, o_proj, gate_up, mlp_down, lm_head";
  EXPECT_EQ(refused_override("q_proj"), "kUsage: --wq q_proj=bf16: 'q_proj' is not a projection: " + projections);
  EXPECT_EQ(refused_override("L1.down"), "kUsage: --wq L1.down=bf16: 'down' is not a projection: " + projections);
  EXPECT_EQ(refused_override(""), "kUsage: --wq =bf16: '' is not a projection: " + projections);
  EXPECT_EQ(refused_override("L2."), "kUsage: --wq L2.=bf16: '' is not a projection: " + projections);
  for (const std::string layer : {"L07", "L", "l7", "7", "L-1", "L+1", "L1x", "L99999999999", ""})
    EXPECT_EQ(refused_override(layer + ".o_proj"),
              "kUsage: --wq " + layer + ".o_proj=bf16: '" + layer + "' is not a layer: write L0, L1, ...");
  EXPECT_EQ(refused_override("L0.lm_head"), "kUsage: --wq L0.lm_head=bf16: lm_head has no layers: write lm_head=bf16");
}

TEST(Options, ControlCharactersOfValuesAreEscaped) {
  EXPECT_EQ(refused_override("\x1b[2J"),
            "kUsage: --wq \\x1b[2J=bf16: '\\x1b[2J' is not a projection: use one of qkv_proj, "
            "o_proj, gate_up, mlp_down, lm_head");
}

TEST(Options, LayersBeyondTheLastAreRefused) {
  const auto refusal = [](const std::string& key) {
    return error_of([&] { validate_layers({.wq_overrides = {{key, "bf16"}}}, 6); });
  };
  EXPECT_EQ(refusal("L5.o_proj"), "");
  EXPECT_EQ(refusal("lm_head"), "");
  EXPECT_EQ(refusal("L6.o_proj"), "kUsage: --wq L6.o_proj=bf16: this model has 6 layers: use L0 to L5");
  EXPECT_EQ(refusal("L99.gate_up"), "kUsage: --wq L99.gate_up=bf16: this model has 6 layers: use L0 to L5");
}

TEST(Options, TiersOfOverridesAreCheckedLikeTheGlobalOne) {
  EXPECT_EQ(refused_override("lm_head", "w8"), "");
  EXPECT_EQ(refused_override("lm_head", "nvfp4"), "");
  EXPECT_EQ(refused_override("L3.gate_up", "fp7"),
            "kUsage: --wq L3.gate_up fp7 is unknown: use bf16, w8, w4, int8, int4, nvfp4");
}

}  // namespace
}  // namespace vireo
