// Every spelling of the preprocessor files, the defaults, and the values that are refused.
// SPDX-License-Identifier: Apache-2.0
#include "image/preprocessor_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "vireo/error.h"

namespace vireo {
namespace {

class PreprocessorFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) / (std::string("vireo_preprocessor_") + test->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& file, const std::string& text) { std::ofstream(folder_ / file) << text; }
  PreprocessorConfig load() { return load_preprocessor_config(folder_); }
  std::string refusal(const std::string& file, const std::string& text) {
    write(file, text);
    try {
      load();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kInput);
      return e.what();
    }
    ADD_FAILURE() << "accepted: " << text;
    return "";
  }

  std::filesystem::path folder_;
};

TEST_F(PreprocessorFiles, MissingFilesGiveThePublishedDefaults) {
  const PreprocessorConfig config = load();
  EXPECT_EQ(config.image.min_pixels, 65536);
  EXPECT_EQ(config.image.max_pixels, 16777216);
  EXPECT_EQ(config.image.factor(), 32);
  EXPECT_EQ(config.video.min_pixels, 4096);
  EXPECT_EQ(config.video.max_pixels, 25165824);
  EXPECT_EQ(config.video.fps, 2);
  EXPECT_EQ(config.video.min_frames, 4);
  EXPECT_EQ(config.video.max_frames, 768);
}

TEST_F(PreprocessorFiles, LinksThatLeadNowhereAreRefused) {
  std::filesystem::create_symlink("gone.json", folder_ / "preprocessor_config.json");
  EXPECT_THROW(load(), Error);
  std::filesystem::remove(folder_ / "preprocessor_config.json");
  std::filesystem::create_symlink("video_preprocessor_config.json", folder_ / "video_preprocessor_config.json");
  EXPECT_THROW(load(), Error);
}

TEST_F(PreprocessorFiles, TheTinyCheckpoint) {
  const PreprocessorConfig config =
      load_preprocessor_config(std::filesystem::path(VIREO_SOURCE_DIR) / "models" / "tiny");
  EXPECT_EQ(config.image.min_pixels, 4096);
  EXPECT_EQ(config.image.max_pixels, 1048576);
  EXPECT_EQ(config.video.max_pixels, 1048576);
  EXPECT_EQ(config.video.max_frames, 64);
  EXPECT_EQ(config.image.mean[2], 0.5f);
}

TEST_F(PreprocessorFiles, FlatAreasWinOverSize) {
  write("preprocessor_config.json",
        R"({"size": {"shortest_edge": 100, "longest_edge": 200}, "max_pixels": 300, "min_pixels": null})");
  EXPECT_EQ(load().image.min_pixels, 100);
  EXPECT_EQ(load().image.max_pixels, 300);
}

TEST_F(PreprocessorFiles, OneFileForBoth) {
  write("preprocessor_config.json", R"({"patch_size": 8})");
  write("processor_config.json",
        R"({"image_processor": {"patch_size": 14, "image_std": [0.25, 0.5, 1]},
            "video_processor": {"merge_size": 4, "fps": 1.5, "min_frames": 2, "max_frames": 8}})");
  const PreprocessorConfig config = load();
  EXPECT_EQ(config.image.patch_size, 14);
  EXPECT_EQ(config.image.std[0], 0.25f);
  EXPECT_EQ(config.video.merge_size, 4);
  EXPECT_EQ(config.video.fps, 1.5);
  EXPECT_EQ(config.video.min_frames, 2);
  EXPECT_EQ(config.video.max_frames, 8);
}

TEST_F(PreprocessorFiles, AProcessorFileWithoutTheSectionLeavesTheOthers) {
  write("processor_config.json", R"({"processor_class": "Qwen3VLProcessor"})");
  write("video_preprocessor_config.json", R"({"temporal_patch_size": 4})");
  EXPECT_EQ(load().video.temporal_patch_size, 4);
}

TEST_F(PreprocessorFiles, WrongValuesAreRefusedByKey) {
  const char* kWrong[][2] = {
      {"patch_size", R"({"patch_size": 0})"},
      {"patch_size", R"({"patch_size": 100000})"},
      {"merge_size", R"({"merge_size": "two"})"},
      {"temporal_patch_size", R"({"temporal_patch_size": -2})"},
      {"shortest_edge", R"({"size": {"shortest_edge": 0}})"},
      {"size", R"({"size": 5})"},
      {"max_pixels", R"({"max_pixels": 1e30})"},
      {"200", R"({"min_pixels": 200, "max_pixels": 100})"},
      {"image_mean", R"({"image_mean": [0.5, 0.5]})"},
      {"image_mean", R"({"image_mean": [0.5, "x", 0.5]})"},
      {"image_std", R"({"image_std": [0, 0.5, 0.5]})"},
      {"do_resize", R"({"do_resize": false})"},
      {"resample", R"({"resample": 2})"},
      {"rescale_factor", R"({"rescale_factor": 1})"},
      {"preprocessor_config.json", "[]"},
  };
  for (const auto& [key, text] : kWrong) {
    const std::string sentence = refusal("preprocessor_config.json", text);
    EXPECT_NE(sentence.find(key), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("preprocessor_config.json"), std::string::npos) << sentence;
  }
}

TEST_F(PreprocessorFiles, WrongVideoValuesAreRefusedByKey) {
  const char* kWrong[][2] = {
      {"fps", R"({"fps": 0})"},
      {"fps", R"({"fps": 1e9})"},
      {"min_frames", R"({"min_frames": 9, "max_frames": 8})"},
      {"max_frames", R"({"max_frames": 99999999999})"},
  };
  for (const auto& [key, text] : kWrong) {
    const std::string sentence = refusal("video_preprocessor_config.json", text);
    EXPECT_NE(sentence.find(key), std::string::npos) << sentence;
  }
}

}  // namespace
}  // namespace vireo
