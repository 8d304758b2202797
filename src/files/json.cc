// See json.h. The tree is built from the parser's events, because only there duplicate keys, depth and the
// spelling of numbers are still visible, and because appending a key to an ordered object otherwise costs a
// search. SPDX-License-Identifier: Apache-2.0
#include "files/json.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <system_error>
#include <unordered_set>

#include "files/mapped_file.h"
#include "files/quote.h"
#include "vireo/error.h"

namespace vireo {
namespace {

class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  TreeBuilder(const std::string& what, int max_depth) : what_(what), max_depth_(max_depth) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) {
      fail(fmt::format("the integer {} does not fit 64 bits", printable(text)));
    }
    return add(value);
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override {
    push(Json::object());
    keys_.emplace_back();
    return true;
  }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) fail(fmt::format("the key {} occurs twice", in_quotes(name)));
    key_ = std::move(name);
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return pop();
  }
  bool start_array(std::size_t) override {
    push(Json::array());
    return true;
  }
  bool end_array() override { return pop(); }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    std::string_view reason = e.what();
    if (const size_t end = reason.find("] "); end != std::string_view::npos) reason.remove_prefix(end + 2);
    fail(printable(reason, 240));
  }

 private:
  [[noreturn]] void fail(const std::string& reason) {
    throw Error(ErrorKind::kInput, fmt::format("{} is not valid JSON: {}", what_, reason));
  }

  // Where the next value goes: the root, the end of the open array, or the open object under the pending key.
  Json* place(Json&& value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    // The base class appends without the linear search of ordered_map; key() has refused duplicates.
    auto& members = static_cast<Json::object_t::Container&>(*parent.get_ptr<Json::object_t*>());
    return &members.emplace_back(std::move(key_), std::move(value)).second;
  }

  template <typename T>
  bool add(T&& value) {
    place(Json(std::forward<T>(value)));
    return true;
  }

  void push(Json&& container) {
    if (static_cast<int>(open_.size()) >= max_depth_) {
      fail(fmt::format("it is nested deeper than {} levels", max_depth_));
    }
    open_.push_back(place(std::move(container)));
  }

  bool pop() {
    open_.pop_back();
    return true;
  }

  const std::string& what_;
  const int max_depth_;
  Json root_;
  std::string key_;
  std::vector<Json*> open_;
  std::vector<std::unordered_set<std::string>> keys_;  // one set per open object
};

std::string describe(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return printable(python_dumps(value));
}

[[noreturn]] void fail_type(const std::string& what, std::string_view key, const Json& value,
                            const std::string& expected) {
  throw Error(ErrorKind::kInput, fmt::format("{}: '{}' is {}, but must be {}", what, key, describe(value), expected));
}

const Json* find_set(const Json& object, std::string_view key) {
  const Json* value = find_key(object, key);
  return value && !value->is_null() ? value : nullptr;
}

int64_t int_in_range(const Json& value, std::string_view key, const std::string& what, int64_t min, int64_t max) {
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
                        : value.is_number_integer();
  if (fits && value.get<int64_t>() >= min && value.get<int64_t>() <= max) return value.get<int64_t>();
  fail_type(what, key, value, fmt::format("an integer from {} to {}", min, max));
}

std::string dump_string(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<int>(c));
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

std::string dump_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  const std::string digits = fmt::format("{}", value);
  return digits.find_first_of(".e") == std::string::npos ? digits + ".0" : digits;
}

std::string dump_array(const Json& array) {
  std::string out = "[";
  for (const Json& item : array) {
    if (out.size() > 1) out += ", ";
    out += python_dumps(item);
  }
  return out + "]";
}

std::string dump_object(const Json& object) {
  std::string out = "{";
  for (const auto& [key, value] : object.items()) {
    if (out.size() > 1) out += ", ";
    out += dump_string(key) + ": " + python_dumps(value);
  }
  return out + "}";
}

}  // namespace

Json parse_json(std::string_view text, const std::string& what, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    throw Error(ErrorKind::kCapacity,
                fmt::format("{} has {} bytes of JSON; at most {} are read", what, text.size(), limits.bytes));
  }
  // The parser would take a NUL byte for the end of the text.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw Error(ErrorKind::kInput, fmt::format("{} is not valid JSON: byte {} is NUL", what, nul));
  }
  TreeBuilder builder(what, limits.depth);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

Json read_json(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json(read_file(path, limits.bytes), path_text(path), limits);
}

std::string read_file(const std::filesystem::path& path, size_t max_bytes) {
  const OpenFile file(path);
  if (file.size() > max_bytes) {
    throw Error(ErrorKind::kCapacity,
                fmt::format("{} has {} bytes; at most {} are read", path_text(path), file.size(), max_bytes));
  }
  std::string bytes(file.size(), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(file.descriptor(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw Error(ErrorKind::kInput,
                  fmt::format("cannot read {}: {}", path_text(path), std::generic_category().message(errno)));
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

const Json* find_key(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

int64_t get_int(const Json& object, std::string_view key, const std::string& what, int64_t min, int64_t max) {
  const Json* value = find_key(object, key);
  if (!value) {
    throw Error(ErrorKind::kInput,
                fmt::format("{}: '{}' is missing; it must be an integer from {} to {}", what, key, min, max));
  }
  return int_in_range(*value, key, what, min, max);
}

int64_t get_int_or(const Json& object, std::string_view key, const std::string& what, int64_t min, int64_t max,
                   int64_t fallback) {
  const Json* value = find_set(object, key);
  return value ? int_in_range(*value, key, what, min, max) : fallback;
}

double get_double_or(const Json& object, std::string_view key, const std::string& what, double fallback) {
  const Json* value = find_set(object, key);
  if (!value) return fallback;
  if (!value->is_number()) fail_type(what, key, *value, "a number");
  return value->get<double>();
}

bool get_bool_or(const Json& object, std::string_view key, const std::string& what, bool fallback) {
  const Json* value = find_set(object, key);
  if (!value) return fallback;
  if (!value->is_boolean()) fail_type(what, key, *value, "true or false");
  return value->get<bool>();
}

std::string get_string_or(const Json& object, std::string_view key, const std::string& what,
                          const std::string& fallback) {
  const Json* value = find_set(object, key);
  if (!value) return fallback;
  if (!value->is_string()) fail_type(what, key, *value, "a string");
  return value->get<std::string>();
}

std::string python_dumps(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      return dump_object(value);
    case Json::value_t::array:
      return dump_array(value);
    case Json::value_t::string:
      return dump_string(value.get_ref<const std::string&>());
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case Json::value_t::number_integer:
      return fmt::format("{}", value.get<int64_t>());
    case Json::value_t::number_unsigned:
      return fmt::format("{}", value.get<uint64_t>());
    case Json::value_t::number_float:
      return dump_float(value.get<double>());
    default:
      return "null";
  }
}

}  // namespace vireo
