// SPDX-License-Identifier: Apache-2.0
#include "files/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "files/mapped_file.h"
#include "files/test_files.h"

namespace vireo {
namespace {

using std::string;

class Safetensors : public ::testing::Test {
 protected:
  SafetensorsFile open(const string& bytes) { return SafetensorsFile::open(folder_.write("x.safetensors", bytes)); }
  // A file whose header, padded with spaces to a multiple of 8, is this text.
  SafetensorsFile open_header(string header, size_t data_bytes) {
    header.resize((header.size() + 7) / 8 * 8, ' ');
    return open(safetensors_bytes(header, string(data_bytes, 'd')));
  }
  // One tensor "a" with these fields over 16 bytes of data.
  SafetensorsFile open_tensor(const string& fields) { return open_header("{\"a\": {" + fields + "}}", 16); }

  TempFolder folder_;
};

const char* const kTwo =
    R"({"__metadata__": {"format": "pt"}, "second": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},)"
    R"( "first": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}})";

TEST_F(Safetensors, GivesTensorsInTheOrderOfTheirData) {
  string header = kTwo;
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const SafetensorsFile file = open(safetensors_bytes(header, string("\x80\x3f") + "bcdefg" + "01234567"));
  ASSERT_EQ(file.tensors().size(), 2u);
  const HostTensor& first = file.tensors()[0];
  EXPECT_EQ(first.name, "first");
  EXPECT_EQ(first.dtype, DType::kBF16);
  EXPECT_EQ(first.shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(first.bytes(), 8u);
  EXPECT_EQ(to_float(*static_cast<const bf16*>(first.data)), 1.0f);
  const HostTensor& second = file.tensors()[1];
  EXPECT_EQ(second.name, "second");
  EXPECT_EQ(std::memcmp(second.data, "01234567", 8), 0);
}

TEST_F(Safetensors, StaysOpenWhenMoved) {
  SafetensorsFile a = open_header(kTwo, 16);
  SafetensorsFile b = SafetensorsFile::open(folder_.write("b", safetensors_bytes("{}", "")));
  b = std::move(a);
  const SafetensorsFile c = std::move(b);
  ASSERT_EQ(c.tensors().size(), 2u);
  EXPECT_EQ(*static_cast<const char*>(c.tensors()[1].data), 'd');
}

TEST_F(Safetensors, TakesScalarsEmptyTensorsGapsAndNoTensors) {
  EXPECT_EQ(open_tensor(R"("dtype": "F64", "shape": [], "data_offsets": [8, 16])").tensors()[0].size(), 1);
  EXPECT_EQ(open_tensor(R"("dtype": "F32", "shape": [3, 0], "data_offsets": [4, 4])").tensors()[0].bytes(), 0u);
  EXPECT_TRUE(open_header("{}", 0).tensors().empty());
  EXPECT_EQ(open_tensor(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,2],"data_offsets":[1,3])").tensors()[0].size(), 2);
}

TEST_F(Safetensors, OpensAPublishedFile) {
  const string path = VIREO_TEST_DATA "/goldens/random_dense/checkpoint/model.safetensors";
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_GT(file.tensors().size(), 30u);
  for (size_t i = 1; i < file.tensors().size(); ++i) {
    const HostTensor& before = file.tensors()[i - 1];
    EXPECT_GE(static_cast<const char*>(file.tensors()[i].data), static_cast<const char*>(before.data) + before.bytes());
  }
}

TEST_F(Safetensors, NamesWhatIsNotThere) {
  EXPECT_ERROR(SafetensorsFile::open(folder_.path() / "no.safetensors"), "kNotFound: cannot open", "no.safetensors");
  EXPECT_ERROR(SafetensorsFile::open(folder_.path()), "kInput", "is a folder");
}

TEST_F(Safetensors, NamesUnfinishedDownloads) {
  EXPECT_ERROR(open(""), "kInput", "x.safetensors: 0 bytes are no safetensors file", "hf download ORG/NAME");
  EXPECT_ERROR(open("1234567"), "7 bytes are no safetensors file");
  EXPECT_ERROR(open("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4255140312\n"), "kInput",
               "a Git LFS pointer, not the weights", "git lfs pull", "hf download ORG/NAME");
  EXPECT_ERROR(SafetensorsFile::open(folder_.write("blob.incomplete", safetensors_bytes("{}", ""))),
               "an unfinished download", "hf download ORG/NAME");
  EXPECT_ERROR(open_header(kTwo, 15), "tensor 'second' ends at byte 16 of the data, which has 15", "cut short",
               "hf download ORG/NAME");
  const string whole = safetensors_bytes(kTwo, "");
  EXPECT_ERROR(open(whole.substr(0, whole.size() - 20)), "its header would have", "cut short");
}

TEST_F(Safetensors, RefusesAbsurdHeaderLengths) {
  EXPECT_ERROR(open(string(8, '\xff') + "{}"), "header would have 18446744073709551615 bytes, but the file has 10");
  EXPECT_ERROR(open(string("\x03\0\0\0\0\0\0\0{}", 10)), "header would have 3 bytes");
  EXPECT_ERROR(open(string("\0\0\0\0\0\0\0\x80{}", 10)), "header would have 9223372036854775808 bytes");
  const auto path = folder_.write("x.safetensors", safetensors_bytes("{}", ""));
  std::filesystem::resize_file(path, 120'000'000);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).write("\x01\xe1\xf5\x05", 4);
  EXPECT_ERROR(SafetensorsFile::open(path), "header would have 100000001 bytes", "100000000 are the limit");
}

TEST_F(Safetensors, RefusesHeadersThatAreNoJsonObject) {
  for (const char* header : {"", "[]", "3", "{", "{\"a\"", "{}}", "{}x", "nul", "{\"a\": 1}", "{\"a\": []}",
                             "{\"a\": null}", "{\"a\": \"b\"}", "{\"a\": true}", "{\"a\": 1.5}"}) {
    EXPECT_ERROR(open(safetensors_bytes(header, "")), "kInput", "bad safetensors header");
  }
  EXPECT_ERROR(open(safetensors_bytes(string("{}\0 ", 4), "")), "bad safetensors header");
  EXPECT_ERROR(open(safetensors_bytes(string(1'000'000, '{'), "")), "bad safetensors header");
  EXPECT_ERROR(open(safetensors_bytes("{\"a\":" + string(1'000'000, '['), "")), "bad safetensors header");
}

TEST_F(Safetensors, RefusesBadMetadata) {
  EXPECT_ERROR(open_header(R"({"__metadata__": {"a": 1}})", 0), "bad safetensors header");
  EXPECT_ERROR(open_header(R"({"__metadata__": {"a": {}}})", 0), "bad safetensors header");
  EXPECT_ERROR(open_header(R"({"__metadata__": []})", 0), "bad safetensors header");
}

TEST_F(Safetensors, RefusesBadFields) {
  EXPECT_ERROR(open_tensor(R"("dtype":"U32","shape":[4],"data_offsets":[0,16])"), "kInput",
               "tensor 'a': its dtype 'U32' is not known");
  EXPECT_ERROR(open_tensor(R"("shape":[4],"data_offsets":[0,16])"), "it has no dtype");
  EXPECT_ERROR(open_tensor(R"("dtype":"F32","data_offsets":[0,16])"), "it has no shape");
  EXPECT_ERROR(open_tensor(R"("dtype":"F32","shape":[4])"), "it has no data_offsets");
  EXPECT_ERROR(open_tensor(R"("dtype":"F32","shape":[4],"data_offsets":[16])"), "it has no data_offsets of two");
  EXPECT_ERROR(open_tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,16,16])"), "it has no data_offsets of two");
  EXPECT_ERROR(open_tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,16],"more":1)"), "the key 'more'");
  EXPECT_ERROR(open_tensor(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16])"),
               "'shape' has more than 8 numbers");
  EXPECT_ERROR(open_tensor(R"("dtype":"F32","shape":4,"data_offsets":[0,16])"), "a number at 'shape'");
  EXPECT_ERROR(open_tensor(R"("dtype":"F32","shape":"4","data_offsets":[0,16])"), "a string at 'shape'");
  EXPECT_ERROR(open_tensor(R"("dtype":"F32","shape":[[4]],"data_offsets":[0,16])"), "a list at 'shape'");
  EXPECT_ERROR(open_tensor(R"("dtype":"F32","shape":[4.0],"data_offsets":[0,16])"), "4.0 is not a 64-bit integer");
  EXPECT_ERROR(open_tensor(R"("dtype":["F32"],"shape":[4],"data_offsets":[0,16])"), "a list at 'dtype'");
  EXPECT_ERROR(open_tensor(R"("dtype":7,"shape":[4],"data_offsets":[0,16])"), "a number at 'dtype'");
  EXPECT_ERROR(open_tensor(R"("dtype":{},"shape":[4],"data_offsets":[0,16])"), "an object at 'dtype'");
}

TEST_F(Safetensors, RefusesDuplicates) {
  const string a = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_ERROR(open_header("{\"a\":" + a + ",\"a\":" + a + "}", 16), "'a' occurs twice");
  EXPECT_ERROR(open_header("{\"a\":" + a + ",\"\\u0061\":" + a + "}", 16), "'a' occurs twice");
  EXPECT_ERROR(open_tensor(R"("dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1])"), "'dtype' occurs twice");
  EXPECT_ERROR(open_tensor(R"("dtype":"U8","shape":[1],"shape":[],"data_offsets":[0,1])"), "'shape' occurs twice");
  EXPECT_ERROR(open_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[],"data_offsets":[0,1])"),
               "'data_offsets' occurs twice");
}

TEST_F(Safetensors, RefusesBadNames) {
  const string a = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_ERROR(open_header("{\"\":" + a + "}", 1), "a tensor name of 0 bytes");
  EXPECT_ERROR(open_header("{\"" + string(1025, 'n') + "\":" + a + "}", 1), "a tensor name of 1025 bytes");
  EXPECT_EQ(open_header("{\"" + string(1024, 'n') + "\":" + a + "}", 1).tensors().size(), 1u);
}

TEST_F(Safetensors, RefusesLyingOffsets) {
  EXPECT_ERROR(open_tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,17])"), "kInput",
               "tensor 'a' ends at byte 17 of the data, which has 16");
  EXPECT_ERROR(open_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[16,8])"), "begins at 16 and ends before, at 8");
  EXPECT_ERROR(open_tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,12])"),
               "tensor 'a' of shape [4] and dtype F32 needs 16 bytes, but its data_offsets hold 12");
  EXPECT_ERROR(open_tensor(R"("dtype":"F32","shape":[0],"data_offsets":[0,4])"), "needs 0 bytes");
  EXPECT_ERROR(open_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[-1,0])"), "-1 is negative");
  EXPECT_ERROR(open_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[9223372036854775808,9223372036854775809])"),
               "9223372036854775808 is not a 64-bit integer");
  EXPECT_ERROR(open_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[9223372036854775806,9223372036854775807])"),
               "ends at byte 9223372036854775807");
  EXPECT_ERROR(open_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,99999999999999999999])"),
               "99999999999999999999 is not a 64-bit integer");
}

TEST_F(Safetensors, RefusesShapesThatOverflow) {
  EXPECT_ERROR(open_tensor(R"("dtype":"U8","shape":[4294967296,4294967296,1],"data_offsets":[0,16])"),
               "needs more than 2^63 bytes, but its data_offsets hold 16");
  EXPECT_ERROR(open_tensor(R"("dtype":"F64","shape":[2305843009213693954],"data_offsets":[0,16])"),
               "needs more than 2^63 bytes");
  EXPECT_ERROR(open_tensor(R"("dtype":"U8","shape":[9223372036854775807,3,0],"data_offsets":[0,0])"), "more than 2^63");
  EXPECT_ERROR(open_tensor(R"("dtype":"U8","shape":[-4,-4],"data_offsets":[0,16])"), "-4 is negative");
}

TEST_F(Safetensors, RefusesOverlaps) {
  const string head = R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],)";
  EXPECT_EQ(open_header(head + R"("data_offsets":[8,16]}})", 16).tensors().size(), 2u);
  EXPECT_ERROR(open_header(head + R"("data_offsets":[7,15]}})", 16), "kInput", "tensors 'a' and 'b' overlap");
  EXPECT_ERROR(open_header(head + R"("data_offsets":[0,8]}})", 16), "tensors 'a' and 'b' overlap");
}

TEST_F(Safetensors, FlippedBytesGiveAnErrorOrTensorsInsideTheFile) {
  string header = kTwo;
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const string good = safetensors_bytes(header, "0123456789abcdef");
  std::mt19937 random(7);
  int opened = 0;
  for (int i = 0; i < 2000; ++i) {
    string bytes = good;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    const string error = error_of([&] {
      const SafetensorsFile file = open(bytes);
      ++opened;
      for (const HostTensor& t : file.tensors()) EXPECT_LE(t.bytes(), 16u);
    });
    EXPECT_TRUE(error.empty() || error.rfind("kInput: ", 0) == 0) << error;
  }
  EXPECT_GT(opened, 100);
  EXPECT_LT(opened, 1900);
}

TEST(MappedFile, MapsMovesAndTakesEmptyFiles) {
  const TempFolder folder;
  EXPECT_TRUE(MappedFile(folder.write("empty", "")).bytes().empty());
  MappedFile a(folder.write("a", "abc"));
  MappedFile b(std::move(a));
  EXPECT_TRUE(a.bytes().empty());
  ASSERT_EQ(b.bytes().size(), 3u);
  EXPECT_EQ(static_cast<char>(b.bytes()[2]), 'c');
  a = std::move(b);
  EXPECT_EQ(static_cast<char>(a.bytes()[0]), 'a');
}

TEST(MappedFile, ClosesItsDescriptors) {
  const TempFolder folder;
  const auto path = folder.write("a", "abc");
  std::vector<MappedFile> files;
  const int before = ::dup(0);
  for (int i = 0; i < 50; ++i) files.emplace_back(path);
  const int after = ::dup(0);
  EXPECT_EQ(after, before + 1);
  ::close(before);
  ::close(after);
}

}  // namespace
}  // namespace vireo
