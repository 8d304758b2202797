// SPDX-License-Identifier: Apache-2.0
#include "files/hub.h"

#include <gtest/gtest.h>

#include "files/test_files.h"

namespace vireo {
namespace {

namespace fs = std::filesystem;
using std::string;

const string kCommit = "89644892e4d85e24eaac8bacfd4f463576704203";
const string kRepository = "hub/models--Qwen--Qwen3-VL-2B-Instruct";
const string kSnapshot = kRepository + "/snapshots/" + kCommit;

class Hub : public ::testing::Test {
 protected:
  // A blob and the link to it, as `hf download` writes them.
  void add(const string& name, const string& bytes, const string& commit = kCommit) {
    folder_.write(kRepository + "/blobs/blob-" + name, bytes);
    const fs::path link = folder_.path() / kRepository / "snapshots" / commit / name;
    fs::create_directories(link.parent_path());
    fs::create_symlink("../../blobs/blob-" + name, link);
  }
  void add_snapshot() {
    folder_.write(kRepository + "/refs/main", kCommit);
    add("config.json", "{}");
    add("model.safetensors", "x");
  }
  void remove(const string& name) { fs::remove(folder_.path() / kSnapshot / name); }
  string resolve(const string& name) { return resolve_checkpoint(name, {folder_.path() / "hub"}).string(); }
  string snapshot() const { return (folder_.path() / kSnapshot).string(); }

  TempFolder folder_;
};

TEST_F(Hub, FindsAFolder) {
  folder_.write("plain/config.json", "{}");
  folder_.write("plain/model.safetensors", "x");
  const string plain = (folder_.path() / "plain").string();
  EXPECT_EQ(resolve(plain), plain);
  EXPECT_EQ(resolve(plain + "/model.safetensors"), plain);
}

TEST_F(Hub, FindsTheFolderOfABareFileName) {
  folder_.write("config.json", "{}");
  folder_.write("model.safetensors", "x");
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  EXPECT_EQ(resolve("model.safetensors"), ".");
  fs::current_path(before);
}

TEST_F(Hub, FindsAHubName) {
  add_snapshot();
  EXPECT_EQ(resolve("Qwen/Qwen3-VL-2B-Instruct"), snapshot());
  EXPECT_EQ(resolve("Qwen/Qwen3-VL-2B-Instruct@main"), snapshot());
  EXPECT_EQ(resolve("Qwen/Qwen3-VL-2B-Instruct@" + kCommit), snapshot());
  folder_.write(kRepository + "/refs/refs/pr/1", kCommit + "\n");
  EXPECT_EQ(resolve("Qwen/Qwen3-VL-2B-Instruct@refs/pr/1"), snapshot());
}

TEST_F(Hub, PrefersAFolderToAHubName) {
  add_snapshot();
  folder_.write("Qwen/Qwen3-VL-2B-Instruct/config.json", "{}");
  folder_.write("Qwen/Qwen3-VL-2B-Instruct/model.safetensors", "x");
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  EXPECT_EQ(resolve("Qwen/Qwen3-VL-2B-Instruct"), "Qwen/Qwen3-VL-2B-Instruct");
  fs::current_path(before);
}

TEST_F(Hub, GivesTheCommandForWhatIsNotCached) {
  EXPECT_ERROR(resolve("Qwen/Other"), "kNotFound: Qwen/Other is neither a folder nor in the Hugging Face cache",
               "hub/models--Qwen--Other does not exist", "run `hf download Qwen/Other`");
  EXPECT_ERROR(resolve("Qwen/Other@v2"), "kNotFound", "run `hf download Qwen/Other --revision v2`");
  add_snapshot();
  EXPECT_ERROR(resolve("Qwen/Qwen3-VL-2B-Instruct@v2"), "kNotFound", "snapshots/v2 does not exist",
               "(cached: Qwen/Qwen3-VL-2B-Instruct@" + kCommit + ")",
               "run `hf download Qwen/Qwen3-VL-2B-Instruct --revision v2`");
}

TEST_F(Hub, NamesDownloadsThatNeverFinished) {
  folder_.write(kRepository + "/refs/main", kCommit);
  folder_.write(kRepository + "/blobs/abc.incomplete", "x");
  EXPECT_ERROR(resolve("Qwen/Qwen3-VL-2B-Instruct"), "kNotFound",
               "1 unfinished download, the first:", "blobs/abc.incomplete");
}

TEST_F(Hub, NamesMissingFilesAndUnfinishedBlobs) {
  add_snapshot();
  remove("model.safetensors");
  EXPECT_ERROR(resolve("Qwen/Qwen3-VL-2B-Instruct"), "kInput: the checkpoint " + snapshot() + " is incomplete",
               "neither model.safetensors nor model.safetensors.index.json is there;",
               "run `hf download Qwen/Qwen3-VL-2B-Instruct` to complete it");
  folder_.write(kRepository + "/blobs/abc.incomplete", "x");
  folder_.write(kRepository + "/blobs/def.incomplete", "x");
  EXPECT_ERROR(resolve("Qwen/Qwen3-VL-2B-Instruct"), "kInput", "2 unfinished downloads, the first:", "abc.incomplete");
  remove("config.json");
  EXPECT_ERROR(resolve("Qwen/Qwen3-VL-2B-Instruct"), "kInput", "config.json is missing");
}

TEST_F(Hub, IgnoresUnfinishedBlobsOfACompleteSnapshot) {
  add_snapshot();
  folder_.write(kRepository + "/blobs/abc.incomplete", "x");
  EXPECT_EQ(resolve("Qwen/Qwen3-VL-2B-Instruct"), snapshot());
}

TEST_F(Hub, NamesDanglingLinks) {
  add_snapshot();
  fs::remove(folder_.path() / kRepository / "blobs/blob-model.safetensors");
  EXPECT_ERROR(resolve("Qwen/Qwen3-VL-2B-Instruct"), "kInput", "is incomplete: model.safetensors links to ",
               "blobs/blob-model.safetensors, which is missing", "hf download");
}

TEST_F(Hub, NamesFilesWithoutControlCharacters) {
  add_snapshot();
  fs::create_symlink("../\x1b[2J", folder_.path() / kSnapshot / "a\x07.json");
  EXPECT_ERROR(resolve("Qwen/Qwen3-VL-2B-Instruct"), R"(a\x07.json links to ../\x1b[2J, which is missing)");
  folder_.write(kRepository + "/blobs/a\x07.incomplete", "x");
  EXPECT_ERROR(resolve("Qwen/Qwen3-VL-2B-Instruct"), R"(blobs/a\x07.incomplete)");
}

TEST_F(Hub, NamesMissingShards) {
  add_snapshot();
  remove("model.safetensors");
  add("model.safetensors.index.json", R"({"weight_map": {"a": "s1.safetensors", "b": "s2.safetensors"}})");
  add("s1.safetensors", "x");
  EXPECT_ERROR(resolve("Qwen/Qwen3-VL-2B-Instruct"), "kInput", "is incomplete: 's2.safetensors' is missing");
  add("s2.safetensors", "x");
  EXPECT_EQ(resolve("Qwen/Qwen3-VL-2B-Instruct"), snapshot());
}

TEST_F(Hub, NamesUnfinishedDownloadsIntoAFolder) {
  folder_.write("local/config.json", "{}");
  folder_.write("local/.cache/huggingface/download/abc.incomplete", "x");
  EXPECT_ERROR(resolve((folder_.path() / "local").string()), "kInput", "is incomplete", "1 unfinished download",
               "download/abc.incomplete", "`hf download ORG/NAME`");
}

TEST_F(Hub, RefusesABadRef) {
  add_snapshot();
  for (const string& commit : {string("../../.."), string(""), string("a/b"), string("x\0y", 3)}) {
    folder_.write(kRepository + "/refs/main", commit);
    EXPECT_ERROR(resolve("Qwen/Qwen3-VL-2B-Instruct"), "kInput", "refs/main holds ", "which is no commit");
  }
  folder_.write(kRepository + "/refs/main", string(5000, 'a'));
  EXPECT_ERROR(resolve("Qwen/Qwen3-VL-2B-Instruct"), "kCapacity", "refs/main has 5000 bytes");
}

TEST_F(Hub, SaysWhatWasTried) {
  for (const string& name :
       {string("nothing"), string("a/b/c"), string("../Qwen"), string("-x/y"), string("a/b@"), string("a/b@../c"),
        string("./none/model.safetensors"), string("a /b"), string("é/x"), string(100'000, 'x')}) {
    EXPECT_ERROR(resolve(name), "kNotFound: the checkpoint '",
                 "is no folder, no .safetensors file and no ORG/NAME[@REV] to look up in the Hugging Face cache",
                 (folder_.path() / "hub").string());
  }
  EXPECT_ERROR(resolve(""), "kInput", "give a folder or ORG/NAME");
  EXPECT_ERROR(resolve(string("a\0b", 3)), "kInput", "give a folder or ORG/NAME");
}

TEST_F(Hub, RefusesOtherFiles) {
  const string file = folder_.write("model.gguf", "x").string();
  EXPECT_ERROR(resolve(file), "kInput: " + file + " is a file, but a checkpoint is a folder or a .safetensors file");
}

}  // namespace
}  // namespace vireo
