// Separable bicubic resampling in 8 bits. Both passes are written over runs of independent sums with one
// weight per run, which compilers turn into vector code: the vertical pass along rows, the horizontal pass
// along columns of a small transposed block of rows. Blocks of rows are shared among threads.
// SPDX-License-Identifier: Apache-2.0
#include "image/resize.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/vector_clones.h"

namespace vireo {
namespace {

constexpr int kChannels = 3;
constexpr double kCubicA = -0.5;
constexpr double kCubicSupport = 2;
constexpr int kMaxPrecision = 22;

double cubic(double x) {
  constexpr double a = kCubicA;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// The inputs [first, first + count) of one output and where their weights start.
struct Window {
  int first;
  int count;
  int weights;
};

// The weights of one axis as 16-bit fixed point with `precision` fractional bits.
struct Taps {
  std::vector<Window> windows;
  std::vector<int16_t> weights;
  int precision = 0;

  const int16_t* of(const Window& window) const { return weights.data() + window.weights; }
};

Window add_window(int from, double scale, int i, std::vector<double>& weights) {
  const double stretch = std::max(scale, 1.0), support = kCubicSupport * stretch;
  const double center = (i + 0.5) * scale;
  const int first = std::max(0, static_cast<int>(center - support + 0.5));
  const int end = std::min(from, static_cast<int>(center + support + 0.5));
  const Window window{first, end - first, static_cast<int>(weights.size())};
  double sum = 0;
  for (int j = 0; j < window.count; ++j) {
    weights.push_back(cubic((first + j - center + 0.5) / stretch));
    sum += weights.back();
  }
  for (int j = 0; j < window.count; ++j) weights[window.weights + j] /= sum;
  return window;
}

// The most fractional bits with which the largest weight still fits in 16 bits.
int precision_for(double largest) {
  int precision = 0;
  while (precision < kMaxPrecision && static_cast<int>(0.5 + largest * (1 << (precision + 1))) < (1 << 15)) ++precision;
  return precision;
}

int16_t fixed_point(double weight, int precision) {
  const double scaled = weight * (1 << precision);
  return static_cast<int16_t>(scaled + (scaled < 0 ? -0.5 : 0.5));
}

Taps make_taps(int from, int to) {
  Taps taps;
  std::vector<double> weights;
  const double scale = static_cast<double>(from) / to;
  for (int i = 0; i < to; ++i) taps.windows.push_back(add_window(from, scale, i, weights));
  taps.precision = precision_for(*std::ranges::max_element(weights));
  for (double w : weights) taps.weights.push_back(fixed_point(w, taps.precision));
  return taps;
}

// out[i] = sum over j of weights[j] * in[j * stride + i], for a run of `N` neighbours.
template <int N>
[[gnu::always_inline]] inline void weigh(const uint8_t* in, size_t stride, const int16_t* weights, int count,
                                         int precision, uint8_t* out) {
  std::array<int32_t, N> sums;
  sums.fill(1 << (precision - 1));
  for (int j = 0; j < count; ++j, in += stride) {
    const int32_t weight = weights[j];
    for (int i = 0; i < N; ++i) sums[i] += weight * in[i];
  }
  for (int i = 0; i < N; ++i) out[i] = static_cast<uint8_t>(std::clamp(sums[i] >> precision, 0, 255));
}

constexpr int kRun = 64;

VIREO_VECTOR_CLONES void vertical_row(const RgbImage& in, const Taps& taps, int y, uint8_t* out) {
  const Window& window = taps.windows[y];
  const int stride = in.width * kChannels;
  const uint8_t* rows = in.pixels.data() + size_t{1} * window.first * stride;
  int x = 0;
  for (; x + kRun <= stride; x += kRun)
    weigh<kRun>(rows + x, stride, taps.of(window), window.count, taps.precision, out + x);
  for (; x < stride; ++x) weigh<1>(rows + x, stride, taps.of(window), window.count, taps.precision, out + x);
}

constexpr int kBlockRows = 16;

RgbImage resize_vertically(const RgbImage& in, int height, ThreadPool& pool) {
  const Taps taps = make_taps(in.height, height);
  const size_t stride = size_t{1} * in.width * kChannels;
  RgbImage out{in.width, height, std::vector<uint8_t>(stride * height)};
  pool.run((height + kBlockRows - 1) / kBlockRows, [&](int64_t block, int) {
    const int first = static_cast<int>(block) * kBlockRows;
    for (int y = first; y < std::min(height, first + kBlockRows); ++y)
      vertical_row(in, taps, y, out.pixels.data() + y * stride);
  });
  return out;
}

constexpr int kColumn = kBlockRows * kChannels;  // bytes of one pixel column of a block

// Up to kBlockRows rows of pixels to columns: column x holds kBlockRows values of each channel.
void to_columns(const uint8_t* rows, int count, int width, uint8_t* columns) {
  for (int r = 0; r < count; ++r)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < kChannels; ++c)
        columns[x * kColumn + c * kBlockRows + r] = rows[(size_t{1} * r * width + x) * kChannels + c];
}

void to_rows(const uint8_t* columns, int count, int width, uint8_t* rows) {
  for (int r = 0; r < count; ++r)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < kChannels; ++c)
        rows[(size_t{1} * r * width + x) * kChannels + c] = columns[x * kColumn + c * kBlockRows + r];
}

VIREO_VECTOR_CLONES void weigh_columns(const uint8_t* wide, const Taps& taps, int width, uint8_t* narrow) {
  for (int x = 0; x < width; ++x) {
    const Window& window = taps.windows[x];
    weigh<kColumn>(wide + size_t{1} * window.first * kColumn, kColumn, taps.of(window), window.count, taps.precision,
                   narrow + size_t{1} * x * kColumn);
  }
}

RgbImage resize_horizontally(const RgbImage& in, int width, ThreadPool& pool) {
  const Taps taps = make_taps(in.width, width);
  RgbImage out{width, in.height, std::vector<uint8_t>(size_t{1} * width * in.height * kChannels)};
  struct Columns {
    std::vector<uint8_t> wide, narrow;
  };
  std::vector<Columns> columns(static_cast<size_t>(pool.size()));
  pool.run((in.height + kBlockRows - 1) / kBlockRows, [&](int64_t block, int thread) {
    auto& [wide, narrow] = columns[static_cast<size_t>(thread)];
    wide.resize(size_t{1} * in.width * kColumn);
    narrow.resize(size_t{1} * width * kColumn);
    const int y = static_cast<int>(block) * kBlockRows, rows = std::min(kBlockRows, in.height - y);
    to_columns(&in.pixels[size_t{1} * y * in.width * kChannels], rows, in.width, wide.data());
    weigh_columns(wide.data(), taps, width, narrow.data());
    to_rows(narrow.data(), rows, width, &out.pixels[size_t{1} * y * width * kChannels]);
  });
  return out;
}

}  // namespace

RgbImage resize(const RgbImage& image, Size target, ThreadPool& pool) {
  CHECK(image.width > 0 && image.height > 0 && target.width > 0 && target.height > 0);
  if (image.width == target.width && image.height == target.height) return image;
  if (image.width == target.width) return resize_vertically(image, target.height, pool);
  RgbImage result = resize_horizontally(image, target.width, pool);
  if (result.height != target.height) result = resize_vertically(result, target.height, pool);
  return result;
}

RgbImage resize(const RgbImage& image, Size target) {
  ThreadPool alone(1);
  return resize(image, target, alone);
}

}  // namespace vireo
