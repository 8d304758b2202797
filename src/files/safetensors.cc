// See safetensors.h. The header is read as a stream of JSON events, so that a hostile one never becomes a
// tree. SPDX-License-Identifier: Apache-2.0
#include "files/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "files/json.h"
#include "files/mapped_file.h"
#include "files/quote.h"
#include "vireo/error.h"

namespace vireo {
namespace {

constexpr size_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxRank = 8;
constexpr std::string_view kAgain =
    "the file is damaged or cut short, as an interrupted download leaves it; fetch it again with "
    "`hf download ORG/NAME`";

struct Entry {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;
  std::vector<int64_t> offsets;
  bool has_dtype = false;
  bool has_shape = false;
  bool has_offsets = false;

  int64_t begin() const { return offsets[0]; }
  int64_t end() const { return offsets[1]; }
};

std::optional<DType> dtype_named(std::string_view name) {
  for (DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kI64,
                      DType::kI32, DType::kI16, DType::kI8, DType::kU8, DType::kBool}) {
    if (name == name_of(dtype)) return dtype;
  }
  return std::nullopt;
}

// Takes {"name": {"dtype": text, "shape": [n...], "data_offsets": [begin, end]}, "__metadata__": {text:
// text}} and refuses everything else.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  std::vector<Entry> take() { return std::move(entries_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("true or false"); }
  bool number_integer(number_integer_t value) override { fail(fmt::format("{} is negative", value)); }
  bool number_float(number_float_t, const string_t& text) override {
    fail(fmt::format("{} is not a 64-bit integer", printable(text)));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!numbers_) unexpected("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      fail(fmt::format("{} is not a 64-bit integer", value));
    }
    if (numbers_->size() == kMaxRank) fail(fmt::format("'{}' has more than {} numbers", key_, kMaxRank));
    numbers_->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor || key_ != "dtype") unexpected("a string");
    const std::optional<DType> dtype = dtype_named(text);
    if (!dtype) fail(fmt::format("its dtype {} is not known", in_quotes(text)));
    entry().dtype = *dtype;
    entry().has_dtype = true;
    return true;
  }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kTop:
        place_ = key_ == "__metadata__" ? Place::kMetadata : Place::kTensor;
        break;
      default:
        unexpected("an object");
    }
    if (place_ == Place::kTensor) {
      entries_.emplace_back();
      entry().name = key_;
    }
    return true;
  }
  bool key(string_t& name) override {
    key_ = std::move(name);
    if (place_ == Place::kTop) check_name();
    if (place_ == Place::kTensor) check_field();
    return true;
  }
  bool end_object() override {
    if (place_ == Place::kTensor) check_complete();
    place_ = Place::kTop;
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || key_ == "dtype" || numbers_) unexpected("a list");
    const bool is_shape = key_ == "shape";
    (is_shape ? entry().has_shape : entry().has_offsets) = true;
    numbers_ = is_shape ? &entry().shape : &entry().offsets;
    return true;
  }
  bool end_array() override {
    numbers_ = nullptr;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    std::string_view reason = e.what();
    if (const size_t end = reason.find("] "); end != std::string_view::npos) reason.remove_prefix(end + 2);
    fail(fmt::format("{}: {}", printable(reason, 160), kAgain));
  }

 private:
  enum class Place { kStart, kTop, kTensor, kMetadata };

  Entry& entry() { return entries_.back(); }

  void check_name() {
    if (key_.empty() || key_.size() > kMaxNameBytes) {
      fail(fmt::format("a tensor name of {} bytes; 1 to {} are allowed", key_.size(), kMaxNameBytes));
    }
    if (!names_.insert(key_).second) fail(fmt::format("{} occurs twice", in_quotes(key_)));
  }
  void check_field() {
    const bool repeated = (key_ == "dtype" && entry().has_dtype) || (key_ == "shape" && entry().has_shape) ||
                          (key_ == "data_offsets" && entry().has_offsets);
    if (repeated) fail(fmt::format("'{}' occurs twice", key_));
    if (key_ != "dtype" && key_ != "shape" && key_ != "data_offsets") {
      fail(fmt::format("the key {} is not one of dtype, shape and data_offsets", in_quotes(key_)));
    }
  }
  void check_complete() {
    const Entry& e = entry();
    if (!e.has_dtype) fail("it has no dtype");
    if (!e.has_shape) fail("it has no shape");
    if (e.offsets.size() != 2) fail("it has no data_offsets of two numbers");
  }

  [[noreturn]] void unexpected(const char* kind) { fail(fmt::format("{} at {}", kind, in_quotes(key_))); }
  [[noreturn]] void fail(const std::string& reason) {
    const std::string where = place_ == Place::kTensor ? ", tensor " + in_quotes(entry().name) : "";
    throw Error(ErrorKind::kInput, fmt::format("{}: bad safetensors header{}: {}", file_, where, reason));
  }

  const std::string& file_;
  Place place_ = Place::kStart;
  std::string key_;
  std::vector<int64_t>* numbers_ = nullptr;  // the open list
  std::vector<Entry> entries_;
  std::unordered_set<std::string> names_;
};

// The parts of a mapped file.
struct Layout {
  std::string file;
  std::string_view header;
  const std::byte* data = nullptr;
  int64_t data_bytes = 0;
};

[[noreturn]] void fail(const std::string& file, const std::string& reason) {
  throw Error(ErrorKind::kInput, fmt::format("{}: {}", file, reason));
}

bool starts_with(std::span<const std::byte> bytes, std::string_view prefix) {
  return bytes.size() >= prefix.size() && std::memcmp(bytes.data(), prefix.data(), prefix.size()) == 0;
}

uint64_t header_length(std::span<const std::byte> bytes) {
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint64_t>(bytes[static_cast<size_t>(i)]);
  return length;
}

Layout split(const std::string& file, std::span<const std::byte> bytes) {
  if (file.ends_with(".incomplete")) fail(file, "an unfinished download; run `hf download ORG/NAME` again");
  if (starts_with(bytes, "version https://git-lfs")) {
    fail(file, "a Git LFS pointer, not the weights; run `git lfs pull` or `hf download ORG/NAME`");
  }
  if (bytes.size() < 8) fail(file, fmt::format("{} bytes are no safetensors file: {}", bytes.size(), kAgain));
  const uint64_t length = header_length(bytes);
  if (length > bytes.size() - 8 || length > kMaxHeaderBytes) {
    fail(file, fmt::format("its header would have {} bytes, but the file has {} and {} are the limit: either it is no "
                           "safetensors file or {}",
                           length, bytes.size(), kMaxHeaderBytes, kAgain));
  }
  const size_t start = 8 + static_cast<size_t>(length);
  return {file,
          {reinterpret_cast<const char*>(bytes.data()) + 8, start - 8},
          bytes.data() + start,
          static_cast<int64_t>(bytes.size() - start)};
}

std::vector<Entry> read_header(const Layout& layout) {
  if (layout.header.empty() || layout.header.front() != '{' || layout.header.find('\0') != std::string_view::npos) {
    fail(layout.file, "bad safetensors header: it is no JSON object");
  }
  HeaderReader reader(layout.file);
  Json::sax_parse(layout.header.begin(), layout.header.end(), &reader);
  return reader.take();
}

// Bytes of a dense tensor; nothing when they do not fit 63 bits.
std::optional<int64_t> checked_bytes(const Entry& entry) {
  int64_t total = 1;
  for (int64_t dim : entry.shape) {
    if (__builtin_mul_overflow(total, dim, &total)) return std::nullopt;
  }
  if (__builtin_mul_overflow(total, static_cast<int64_t>(size_of(entry.dtype)), &total)) return std::nullopt;
  return total;
}

void check_placement(const Layout& layout, const Entry& entry) {
  const int64_t begin = entry.begin(), end = entry.end();
  const std::string tensor = "tensor " + in_quotes(entry.name);
  if (begin > end) fail(layout.file, fmt::format("{} begins at {} and ends before, at {}", tensor, begin, end));
  if (end > layout.data_bytes) {
    fail(layout.file,
         fmt::format("{} ends at byte {} of the data, which has {}: {}", tensor, end, layout.data_bytes, kAgain));
  }
  if (const auto bytes = checked_bytes(entry); bytes != end - begin) {
    fail(layout.file, fmt::format("{} of shape {} and dtype {} needs {} bytes, but its data_offsets hold {}", tensor,
                                  shape_text(entry.shape), name_of(entry.dtype),
                                  bytes ? std::to_string(*bytes) : "more than 2^63", end - begin));
  }
}

void check_overlaps(const Layout& layout, const std::vector<Entry>& sorted) {
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1].end() <= sorted[i].begin()) continue;
    fail(layout.file,
         fmt::format("tensors {} and {} overlap", in_quotes(sorted[i - 1].name), in_quotes(sorted[i].name)));
  }
}

std::vector<HostTensor> read_tensors(const Layout& layout) {
  std::vector<Entry> entries = read_header(layout);
  for (const Entry& entry : entries) check_placement(layout, entry);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  check_overlaps(layout, entries);
  std::vector<HostTensor> tensors;
  for (Entry& entry : entries) {
    const std::byte* data = layout.data + entry.begin();
    tensors.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape), data});
  }
  return tensors;
}

}  // namespace

SafetensorsFile::SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.file_ = std::make_unique<MappedFile>(path);
  file.tensors_ = read_tensors(split(path_text(path), file.file_->bytes()));
  return file;
}

void SafetensorsFile::leave_memory() const {
  file_->leave_memory();
}

}  // namespace vireo
