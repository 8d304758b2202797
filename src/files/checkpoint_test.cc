// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "files/test_files.h"

namespace vireo {
namespace {

using std::string;

// A file of tensors "name" -> BF16 [2, 3], each filled with its place in the list.
string file_of_names(const std::vector<string>& names, const string& dtype = "BF16") {
  string header = "{", data;
  for (size_t i = 0; i < names.size(); ++i) {
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[2,3],"data_offsets":[{},{}]}})", i ? "," : "", names[i],
                          dtype, 12 * i, 12 * i + 12);
    data += string(12, static_cast<char>('0' + i));
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return safetensors_bytes(header, data);
}

class CheckpointTest : public ::testing::Test {
 protected:
  Checkpoint open_single(const std::vector<string>& names) {
    folder_.write("model.safetensors", file_of_names(names));
    return Checkpoint::open(folder_.path());
  }
  void write_index(const string& weight_map) {
    folder_.write("model.safetensors.index.json", "{\"metadata\": {}, \"weight_map\": " + weight_map + "}");
  }
  Checkpoint open_index(const string& weight_map) {
    write_index(weight_map);
    return Checkpoint::open(folder_.path());
  }

  TempFolder folder_;
};

TEST_F(CheckpointTest, OpensASingleFile) {
  const Checkpoint c = open_single({"lm_head.weight", "model.language_model.norm.weight"});
  EXPECT_EQ(c.folder(), folder_.path());
  EXPECT_EQ(c.tensors().size(), 2u);
  EXPECT_EQ(c.tensor_bytes(), 24u);
  const HostTensor& norm = c.get("model.language_model.norm.weight", {2, 3});
  EXPECT_EQ(*static_cast<const char*>(norm.data), '1');
  EXPECT_EQ(&norm, c.find("model.language_model.norm.weight"));
  EXPECT_EQ(c.file_of(norm), folder_.path() / "model.safetensors");
  EXPECT_EQ(c.find("none"), nullptr);
}

TEST_F(CheckpointTest, OpensShards) {
  folder_.write("a.safetensors", file_of_names({"x", "y"}));
  folder_.write("b.safetensors", file_of_names({"z"}));
  const Checkpoint c = open_index(R"({"z": "b.safetensors", "x": "a.safetensors", "y": "a.safetensors"})");
  ASSERT_EQ(c.tensors().size(), 3u);
  EXPECT_EQ(c.tensors()[0].name, "x");
  EXPECT_EQ(c.tensors()[2].name, "z");
  EXPECT_EQ(c.file_of(*c.find("y")).filename(), "a.safetensors");
  EXPECT_EQ(c.file_of(*c.find("z")).filename(), "b.safetensors");
}

TEST_F(CheckpointTest, KeepsItsTensorsWhenMoved) {
  Checkpoint a = open_single({"x"});
  const Checkpoint b = std::move(a);
  EXPECT_EQ(b.file_of(b.get("x", {2, 3})).filename(), "model.safetensors");
}

TEST_F(CheckpointTest, GivesThePublishedNames) {
  const std::pair<const char*, const char*> cases[] = {
      {"visual.pos_embed.weight", "model.visual.pos_embed.weight"},
      {"vision_tower.pos_embed.weight", "model.visual.pos_embed.weight"},
      {"model.visual.pos_embed.weight", "model.visual.pos_embed.weight"},
      {"model.layers.0.mlp.gate.weight", "model.language_model.layers.0.mlp.gate.weight"},
      {"model.embed_tokens.weight", "model.language_model.embed_tokens.weight"},
      {"model.norm.weight", "model.language_model.norm.weight"},
      {"language_model.model.norm.weight", "model.language_model.norm.weight"},
      {"language_model.model.layers.3.mlp.experts.7.up_proj.weight",
       "model.language_model.layers.3.mlp.experts.7.up_proj.weight"},
      {"language_model.lm_head.weight", "lm_head.weight"},
      {"lm_head.weight", "lm_head.weight"},
      {"model.language_model.norm.weight", "model.language_model.norm.weight"},
      {"other.visual.x", "other.visual.x"}};
  for (const auto& [spelt, published] : cases) {
    const Checkpoint c = open_single({spelt});
    EXPECT_EQ(c.tensors()[0].name, published);
    EXPECT_NE(c.find(published), nullptr);
  }
}

TEST_F(CheckpointTest, RefusesNamesThatFallTogether) {
  EXPECT_ERROR(open_single({"visual.x", "model.visual.x"}), "kInput", "the tensor 'model.visual.x' occurs twice");
}

TEST_F(CheckpointTest, RefusesATensorInTwoShards) {
  folder_.write("a.safetensors", file_of_names({"x"}));
  folder_.write("b.safetensors", file_of_names({"x", "y"}));
  EXPECT_ERROR(open_index(R"({"x": "a.safetensors", "y": "b.safetensors"})"), "kInput", "the tensor 'x' occurs twice",
               "a.safetensors and in", "b.safetensors");
}

TEST_F(CheckpointTest, NamesWhatIsMissing) {
  EXPECT_ERROR(Checkpoint::open(folder_.path()), "kNotFound",
               "holds neither model.safetensors nor model.safetensors.index.json", "hf download");
  EXPECT_ERROR(Checkpoint::open(folder_.path() / "none"), "kNotFound");
  folder_.write("a.safetensors", file_of_names({"x"}));
  EXPECT_ERROR(open_index(R"({"x": "a.safetensors", "y": "b.safetensors"})"), "kNotFound", "the shard",
               "b.safetensors that model.safetensors.index.json names is missing", "hf download");
  EXPECT_ERROR(open_index(R"({"x": "a.safetensors", "y": "a.safetensors"})"), "kInput", "the tensor 'y' is not in",
               "a.safetensors, where model.safetensors.index.json places it");
}

TEST_F(CheckpointTest, NamesADanglingShard) {
  std::filesystem::create_symlink("../blobs/gone", folder_.path() / "a.safetensors");
  EXPECT_ERROR(open_index(R"({"x": "a.safetensors"})"), "kNotFound", "a link whose target is missing", "hf download");
  std::filesystem::create_symlink("../blobs/gone", folder_.path() / "model.safetensors");
  EXPECT_ERROR(Checkpoint::open(folder_.path()), "kNotFound", "model.safetensors is a link whose target is missing");
}

TEST_F(CheckpointTest, RefusesShardNamesThatLeaveTheFolder) {
  for (const char* name : {"../a.safetensors", "/etc/a.safetensors", "s/a.safetensors", "..", "", ".safetensors",
                           "s\\\\a.safetensors", "a.bin", "a\\u0000.safetensors"}) {
    EXPECT_ERROR(open_index(fmt::format(R"({{"x": "{}"}})", name)), "kInput", "the shard name '",
                 "is not the name of a .safetensors file in the folder");
  }
  EXPECT_ERROR(open_index(R"({"x": "a\u0001\u001b[2J.safetensors"})"), "kInput",
               R"(the shard name 'a\x01\x1b[2J.safetensors' is not)");
  EXPECT_ERROR(open_index(R"({"x": "a\u007f.safetensors"})"), "kInput", R"(the shard name 'a\x7f.safetensors' is not)");
  EXPECT_ERROR(open_index("{\"x\": \"" + string(300, 'a') + ".safetensors\"}"), "the shard name 'aaa");
}

TEST_F(CheckpointTest, RefusesBadIndexes) {
  for (const char* map : {"{}", "[]", "3", "null"}) {
    EXPECT_ERROR(open_index(map), "kInput", "'weight_map' is missing or names no tensor");
  }
  EXPECT_ERROR(open_index(R"({"x": 3})"), "kInput", "the shard of 'x' is no string");
  EXPECT_ERROR(open_index(R"({"x": "a.safetensors", "x": "b.safetensors"})"), "the key 'x' occurs twice");
  EXPECT_ERROR(open_index("{"), "kInput", "model.safetensors.index.json is not valid JSON");
  string many = "{";
  for (int i = 0; i < 5000; ++i) many += fmt::format(R"({}"t{}": "s{}.safetensors")", i ? "," : "", i, i);
  EXPECT_ERROR(open_index(many + "}"), "names more than 4096 shards");
}

TEST_F(CheckpointTest, NamesADamagedShard) {
  folder_.write("a.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_ERROR(open_index(R"({"x": "a.safetensors"})"), "kInput", "a.safetensors: a Git LFS pointer");
  folder_.write("a.safetensors", file_of_names({"x"}).substr(0, 70));
  EXPECT_ERROR(open_index(R"({"x": "a.safetensors"})"), "kInput", "a.safetensors", "cut short");
}

TEST_F(CheckpointTest, GetNamesTensorFileAndBothValues) {
  const Checkpoint c = open_single({"x"});
  EXPECT_ERROR(c.get("y", {2, 3}), "kNotFound", folder_.path().string() + " has no tensor 'y' (expected: BF16 [2, 3])");
  EXPECT_ERROR(c.get("x", {3, 2}), "kInput",
               "model.safetensors: the tensor 'x' has the shape [2, 3], but config.json asks for [3, 2]");
  EXPECT_ERROR(c.get("x", {6}), "has the shape [2, 3], but config.json asks for [6]");
}

TEST_F(CheckpointTest, GetRefusesOtherDtypes) {
  folder_.write("model.safetensors", file_of_names({"x"}, "F16"));
  const Checkpoint c = Checkpoint::open(folder_.path());
  EXPECT_ERROR(c.get("x", {2, 3}), "kInput", "model.safetensors: the tensor 'x' has the dtype F16",
               "only BF16 is accepted", "bfloat16");
}

TEST_F(CheckpointTest, NamesAreShownWithoutControlCharacters) {
  const std::filesystem::path folder = folder_.write("a\x1b[2J/model.safetensors", file_of_names({"x\\u0007"}));
  const Checkpoint c = Checkpoint::open(folder.parent_path());
  EXPECT_ERROR(c.get("x\x07", {6}), R"(a\x1b[2J/model.safetensors: the tensor 'x\x07' has the shape)");
  EXPECT_ERROR(c.get("y\x07", {6}), R"(a\x1b[2J has no tensor 'y\x07')");
  EXPECT_ERROR(Checkpoint::open(folder_.path() / "b\n"), R"(b\x0a holds neither model.safetensors)");
}

TEST_F(CheckpointTest, GetRefusesUnalignedTensors) {
  string header = R"({"x":{"dtype":"BF16","shape":[2],"data_offsets":[1,5]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  folder_.write("model.safetensors", safetensors_bytes(header, "12345"));
  const Checkpoint c = Checkpoint::open(folder_.path());
  EXPECT_ERROR(c.get("x", {2}), "kInput", "the tensor 'x' begins at an odd byte", "safetensors 0.3");
}

TEST_F(CheckpointTest, FlippedBytesGiveAnErrorOrACheckpoint) {
  folder_.write("a.safetensors", file_of_names({"x", "y"}));
  const string index = R"({"metadata":{"total_size":24},"weight_map":{"x":"a.safetensors","y":"a.safetensors"}})";
  std::mt19937 random(3);
  int opened = 0;
  for (int i = 0; i < 2000; ++i) {
    string bytes = index;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    folder_.write("model.safetensors.index.json", bytes);
    const string error =
        error_of([&] { opened += static_cast<int>(Checkpoint::open(folder_.path()).tensors().size() == 2); });
    EXPECT_TRUE(error.empty() || error.rfind("kInput: ", 0) == 0 || error.rfind("kNotFound: ", 0) == 0) << error;
  }
  EXPECT_GT(opened, 100);
  EXPECT_LT(opened, 1900);
}

TEST(CheckpointFiles, OpensTheTinyModel) {
  const Checkpoint c = Checkpoint::open(VIREO_SOURCE_DIR "/models/tiny");
  const HostTensor& embedding = c.get("model.language_model.embed_tokens.weight", {1088, 256});
  EXPECT_EQ(embedding.bytes(), 1088u * 256 * 2);
  EXPECT_EQ(c.get("model.visual.patch_embed.proj.weight", {128, 3, 2, 16, 16}).dtype, DType::kBF16);
  EXPECT_EQ(c.find("lm_head.weight"), nullptr);
}

TEST(CheckpointFiles, OpensTheRandomMixtureOfExperts) {
  const Checkpoint c = Checkpoint::open(VIREO_TEST_DATA "/goldens/random_moe/checkpoint");
  EXPECT_NE(c.find("lm_head.weight"), nullptr);
  EXPECT_NE(c.find("model.language_model.layers.0.mlp.gate.weight"), nullptr);
}

}  // namespace
}  // namespace vireo
