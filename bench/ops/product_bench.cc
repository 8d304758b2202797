// The CPU backend's product of rows with packed weights against oneDNN's bf16 matmul: same process, taking turns, medians.
//   product_bench [ROWS OUTPUTS INPUTS]   with OMP_NUM_THREADS for both sides and OMP_WAIT_POLICY=passive, or oneDNN's
// threads go on spinning in our time.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <dnnl.hpp>
#include <random>
#include <vector>

#include "cpu/cpu_backend.h"

namespace {

using namespace vireo;

struct Shape {
  int64_t rows, outs, ins;
};

double seconds_of(const std::function<void()>& run) {
  usleep(5000);  // the other side's threads go to sleep
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Result {
  double own, other, error;  // median seconds, relative norm of the difference
};

Result compare(const Shape& s, int threads) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<bf16> weights(static_cast<size_t>(s.outs * s.ins)), rows(static_cast<size_t>(s.rows * s.ins));
  for (bf16& v : weights) v = to_bf16(uniform(random));
  for (bf16& v : rows) v = to_bf16(uniform(random));

  const auto backend = make_cpu_backend({.threads = threads});
  const auto linear = backend->place({{"w", DType::kBF16, {s.outs, s.ins}, weights.data()}}, {}, {});
  const OwnedTensor x = backend->allocate(s.rows, s.ins, DType::kF32),
                    y = backend->allocate(s.rows, s.outs, DType::kF32);
  for (int64_t i = 0; i < x.view.size(); ++i) x.view.row<float>(0)[i] = to_float(rows[static_cast<size_t>(i)]);

  using dnnl::memory;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc a({s.rows, s.ins}, memory::data_type::bf16, memory::format_tag::ab);
  const memory::desc b({s.ins, s.outs}, memory::data_type::bf16, memory::format_tag::ba);
  const memory::desc any({s.ins, s.outs}, memory::data_type::bf16, memory::format_tag::any);
  const memory::desc c({s.rows, s.outs}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, any, c), engine);
  std::vector<float> other(static_cast<size_t>(s.rows * s.outs));
  memory am(a, engine, rows.data()), bm(b, engine, weights.data()), packed(description.weights_desc(), engine),
      cm(c, engine, other.data());
  dnnl::reorder(bm, packed).execute(stream, bm, packed);
  const dnnl::matmul matmul(description);

  const auto own_run = [&] { backend->ops().linear(*linear, x.view, y.view); };
  const auto other_run = [&] {
    matmul.execute(stream, {{DNNL_ARG_SRC, am}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, cm}});
    stream.wait();
  };
  own_run();
  other_run();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < other.size(); ++i) {
    difference += std::pow(double{y.view.row<float>(0)[i]} - other[i], 2);
    norm += double{other[i]} * other[i];
  }
  std::vector<double> own_times, other_times;
  for (int i = 0; i < 31; ++i) {
    own_times.push_back(seconds_of(own_run));
    other_times.push_back(seconds_of(other_run));
  }
  std::nth_element(own_times.begin(), own_times.begin() + 15, own_times.end());
  std::nth_element(other_times.begin(), other_times.begin() + 15, other_times.end());
  return {own_times[15], other_times[15], std::sqrt(difference / norm)};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Shape> shapes = {
      {256, 6144, 2048}, {256, 2048, 6144}, {972, 4096, 1024}, {972, 1024, 4096}, {260, 12288, 2048}};
  if (argc == 4) shapes = {{std::atol(argv[1]), std::atol(argv[2]), std::atol(argv[3])}};
  const char* threads = std::getenv("OMP_NUM_THREADS");
  for (const Shape& s : shapes) {
    const Result r = compare(s, threads ? std::atoi(threads) : 0);
    const double operations = 2e-9 * static_cast<double>(s.rows * s.outs * s.ins);
    fmt::print("{:>5} x {:>6} x {:>5}  own {:7.1f} GFLOP/s  oneDNN {:7.1f} GFLOP/s  ratio {:.3f}  difference {:.1e}\n",
               s.rows, s.outs, s.ins, operations / r.own, operations / r.other, r.other / r.own, r.error);
  }
}
