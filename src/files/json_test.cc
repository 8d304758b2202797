// SPDX-License-Identifier: Apache-2.0
#include "files/json.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <random>

#include "files/test_files.h"

namespace vireo {
namespace {

using std::string;

Json parse(const string& text) {
  return parse_json(text, "x.json");
}

string nested(int depth) {
  return string(depth, '[') + string(depth, ']');
}

TEST(ParseJson, KeepsOrderTypesAndValues) {
  const Json v = parse(R"({"b": 1, "a": [true, null, -2, 1.5, "é\n"], "": {}, "c": 18446744073709551615})");
  EXPECT_EQ(v.dump(), R"({"b":1,"a":[true,null,-2,1.5,"é\n"],"":{},"c":18446744073709551615})");
  EXPECT_EQ(v["b"].get<int>(), 1);
  EXPECT_TRUE(v["c"].is_number_unsigned());
  EXPECT_EQ(parse(" 7 ").get<int>(), 7);
}

TEST(ParseJson, SkipsAByteOrderMark) {
  EXPECT_EQ(parse("\xEF\xBB\xBF{\"a\": 1}").dump(), R"({"a":1})");
  EXPECT_ERROR(parse("\xEF\xBB{}"), "kInput: x.json is not valid JSON");
}

TEST(ParseJson, RefusesTextAfterTheValue) {
  EXPECT_ERROR(parse("{} {}"), "kInput: x.json is not valid JSON", "line 1, column 4");
  EXPECT_ERROR(parse("1 x"), "kInput");
  EXPECT_ERROR(parse(string("{}\0garbage", 10)), "kInput: x.json is not valid JSON: byte 2 is NUL");
}

TEST(ParseJson, RefusesDuplicateKeysPerObject) {
  EXPECT_ERROR(parse(R"({"a": 1, "b": 2, "a": 3})"), "kInput", "the key 'a' occurs twice");
  EXPECT_ERROR(parse(R"([{"a": {"b": 1, "\u0062": 2}}])"), "the key 'b' occurs twice");
  EXPECT_EQ(parse(R"({"a": {"a": 1}, "b": {"a": 2}})")["b"]["a"].get<int>(), 2);
}

TEST(ParseJson, LimitsDepth) {
  EXPECT_EQ(parse(nested(64)).size(), 1u);
  EXPECT_ERROR(parse(nested(65)), "kInput", "nested deeper than 64 levels");
  EXPECT_ERROR(parse(string(10'000'000, '[')), "nested deeper than 64 levels");
  EXPECT_ERROR(parse_json(R"({"a": {}})", "x", {.depth = 1}), "nested deeper than 1 levels");
}

TEST(ParseJson, LimitsBytes) {
  EXPECT_EQ(parse_json("[1]", "x", {.bytes = 3}).size(), 1u);
  EXPECT_ERROR(parse_json("[10]", "x", {.bytes = 3}), "kCapacity: x has 4 bytes of JSON; at most 3 are read");
}

TEST(ParseJson, RefusesNumbersThatDoNotFit) {
  for (const char* text : {"1e400", "-1e400", "NaN", "Infinity", "-Infinity", "01", "+1", ".5", "1.", "0x10"}) {
    EXPECT_ERROR(parse(text), "kInput: x.json is not valid JSON");
  }
  EXPECT_ERROR(parse("18446744073709551616"), "the integer 18446744073709551616 does not fit 64 bits");
  EXPECT_ERROR(parse("-9223372036854775809"), "the integer -9223372036854775809 does not fit 64 bits");
  EXPECT_EQ(parse("-9223372036854775808").get<int64_t>(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(parse("1e308").get<double>(), 1e308);
}

TEST(ParseJson, RefusesBrokenTexts) {
  for (const char* text : {"", " ", "{", "[1,", "{\"a\"}", "{\"a\":}", "{a:1}", "'a'", "[1,]", "{\"a\":1,}", "tru",
                           "\"a", "\"\\x\"", "\"\\ud800\"", "\"\n\"", "// c\n1", "\"\xff\"", "\"\xed\xa0\x80\"", "]"}) {
    EXPECT_ERROR(parse(text), "kInput: x.json is not valid JSON");
  }
}

TEST(ParseJson, ErrorsArePrintableAndShort) {
  const string error = error_of([] { parse("[\"" + string(100'000, 'x') + "\xff\xfe\""); });
  EXPECT_LT(error.size(), 400u);
  EXPECT_TRUE(std::all_of(error.begin(), error.end(), [](char c) { return c >= 0x20 && c < 0x7f; }));
}

TEST(ParseJson, ManyKeysInLinearTime) {
  string text = "{";
  for (int i = 0; i < 300'000; ++i) text += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":" + std::to_string(i);
  const Json v = parse(text + "}");
  EXPECT_EQ(v.size(), 300'000u);
  EXPECT_EQ(v.get_ptr<const Json::object_t*>()->back().first, "k299999");
}

TEST(ParseJson, FlippedBytesGiveAnErrorOrAValue) {
  const string good = R"({"a": [1, -2.5e3, "\u00e9\\", true], "b": {"c": null, "d": [[], {}]}})";
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    string text = good;
    for (int n = 0; n <= i % 3; ++n) text[random() % text.size()] = static_cast<char>(random());
    const string error = error_of([&] { python_dumps(parse(text)); });
    EXPECT_TRUE(error.empty() || error.rfind("kInput: ", 0) == 0) << error;
  }
}

TEST(ReadJson, NamesTheFile) {
  const TempFolder folder;
  EXPECT_EQ(read_json(folder.write("a.json", "[1, 2]")).size(), 2u);
  EXPECT_ERROR(read_json(folder.write("b.json", "[1, 2")), "kInput", "b.json is not valid JSON");
}

TEST(ReadFile, GivesBytesAndErrors) {
  const TempFolder folder;
  const string bytes("a\0b", 3);
  EXPECT_EQ(read_file(folder.write("f", bytes), 3), bytes);
  EXPECT_EQ(read_file(folder.write("empty", ""), 0), "");
  EXPECT_ERROR(read_file(folder.path() / "f", 2), "kCapacity", "has 3 bytes; at most 2 are read");
  EXPECT_ERROR(read_file(folder.path() / "none", 9), "kNotFound: cannot open", "none: No such file or directory");
  EXPECT_ERROR(read_file(folder.path() / "f" / "g", 9), "kNotFound");
  EXPECT_ERROR(read_file(folder.path(), 9), "kInput", "is a folder, not a file");
  EXPECT_ERROR(read_file(string(5000, 'x'), 9), "kInput: cannot open");
}

TEST(ReadFile, DoesNotWaitForAPipe) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_ERROR(read_file(folder.path() / "pipe", 9), "kInput", "is a pipe or device, not a file");
}

TEST(ReadFile, NamesADanglingLink) {
  const TempFolder folder;
  std::filesystem::create_symlink("blobs/gone", folder.path() / "link");
  EXPECT_ERROR(read_file(folder.path() / "link", 9), "kNotFound", "link is a link whose target is missing",
               "hf download");
}

TEST(TypedAccess, GivesValuesAndFallbacks) {
  const Json v = parse(R"({"i": 5, "d": 0.5, "b": true, "s": "x", "n": null})");
  EXPECT_EQ(get_int(v, "i", "x", 5, 5), 5);
  EXPECT_EQ(get_int_or(v, "none", "x", 0, 9, -1), -1);
  EXPECT_EQ(get_int_or(v, "n", "x", 0, 9, -1), -1);
  EXPECT_EQ(get_double_or(v, "d", "x", 2.0), 0.5);
  EXPECT_EQ(get_double_or(v, "i", "x", 2.0), 5.0);
  EXPECT_EQ(get_double_or(v, "none", "x", 2.0), 2.0);
  EXPECT_TRUE(get_bool_or(v, "b", "x", false));
  EXPECT_TRUE(get_bool_or(v, "n", "x", true));
  EXPECT_EQ(get_string_or(v, "s", "x", "y"), "x");
  EXPECT_EQ(get_string_or(v, "none", "x", "y"), "y");
  EXPECT_EQ(find_key(v, "none"), nullptr);
  EXPECT_EQ(find_key(Json(3), "i"), nullptr);
  ASSERT_NE(find_key(v, "n"), nullptr);
}

TEST(TypedAccess, NamesKeyValueAndType) {
  const Json v =
      parse(R"({"i": 5, "f": 3.0, "b": true, "s": "é", "o": {}, "l": [], "big": 18446744073709551615, "n": null})");
  EXPECT_ERROR(get_int(v, "none", "c.json", 1, 4),
               "kInput: c.json: 'none' is missing; it must be an integer from 1 to 4");
  EXPECT_ERROR(get_int(v, "i", "c.json", 1, 4), "kInput: c.json: 'i' is 5, but must be an integer from 1 to 4");
  EXPECT_ERROR(get_int(v, "i", "c.json", 6, 9), "'i' is 5, but must be an integer from 6 to 9");
  EXPECT_ERROR(get_int(v, "f", "c.json", 1, 4), "'f' is 3.0, but must be an integer");
  EXPECT_ERROR(get_int(v, "b", "c.json", 1, 4), "'b' is true, but must be an integer");
  EXPECT_ERROR(get_int(v, "n", "c.json", 1, 4), "'n' is null, but must be an integer");
  EXPECT_ERROR(get_int_or(v, "big", "c.json", 1, 4, 2), "'big' is 18446744073709551615, but must be");
  EXPECT_ERROR(get_double_or(v, "s", "c.json", 1), "'s' is \"\\xc3\\xa9\", but must be a number");
  EXPECT_ERROR(get_double_or(v, "b", "c.json", 1), "'b' is true, but must be a number");
  EXPECT_ERROR(get_bool_or(v, "i", "c.json", false), "'i' is 5, but must be true or false");
  EXPECT_ERROR(get_bool_or(v, "o", "c.json", false), "'o' is an object, but must be true or false");
  EXPECT_ERROR(get_string_or(v, "l", "c.json", ""), "'l' is a list, but must be a string");
}

// The right-hand sides are what CPython 3 prints.
TEST(PythonDumps, FloatsAsRepr) {
  const std::pair<double, const char*> cases[] = {{1.0, "1.0"},
                                                  {-0.0, "-0.0"},
                                                  {0.1, "0.1"},
                                                  {1e16, "1e+16"},
                                                  {9999999999999998.0, "9999999999999998.0"},
                                                  {123456789012345680.0, "1.2345678901234568e+17"},
                                                  {1e15, "1000000000000000.0"},
                                                  {1e-5, "1e-05"},
                                                  {0.0001, "0.0001"},
                                                  {0.00012345, "0.00012345"},
                                                  {1.5e-7, "1.5e-07"},
                                                  {1e22, "1e+22"},
                                                  {1e23, "1e+23"},
                                                  {1e100, "1e+100"},
                                                  {5e-324, "5e-324"},
                                                  {1.7976931348623157e308, "1.7976931348623157e+308"},
                                                  {2.0 / 3.0, "0.6666666666666666"},
                                                  {100.0, "100.0"},
                                                  {3.141592653589793, "3.141592653589793"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(python_dumps(Json(value)), text);
  EXPECT_EQ(python_dumps(Json(std::nan(""))), "NaN");
  EXPECT_EQ(python_dumps(Json(-INFINITY)), "-Infinity");
}

TEST(PythonDumps, StringsEscapeOnlyWhatPythonEscapes) {
  EXPECT_EQ(python_dumps(Json("a\"b\\c/\n\r\t\f\b\x01\x1f\x7f é 你 😀 \u2028")),
            "\"a\\\"b\\\\c/\\n\\r\\t\\f\\b\\u0001\\u001f\x7f é 你 😀 \u2028\"");
  EXPECT_EQ(python_dumps(Json(string("\0", 1))), "\"\\u0000\"");
}

TEST(PythonDumps, ContainersAndNumbers) {
  EXPECT_EQ(python_dumps(parse(R"({"b":[1,-2,3.50,1E5],"a":{"é":null,"t":true,"f":false},"e":[],"o":{}})")),
            R"({"b": [1, -2, 3.5, 100000.0], "a": {"é": null, "t": true, "f": false}, "e": [], "o": {}})");
  EXPECT_EQ(python_dumps(parse("18446744073709551615")), "18446744073709551615");
  EXPECT_EQ(python_dumps(parse("-0")), "0");
}

}  // namespace
}  // namespace vireo
