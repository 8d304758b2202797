// SPDX-License-Identifier: Apache-2.0
#include "cuda/vendor_gemm.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <vector>

#include "cuda/cuda_context.h"

namespace vireo::cuda {
namespace {

// The few functions that are used, by the names of the library.
struct Library {
  void* handle = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_product = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_product = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_product = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) find = nullptr;
};

template <typename F>
bool take(void* handle, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(handle, name));
  return function != nullptr;
}

const Library& library() {
  static const Library loaded = [] {
    Library l;
    const std::string major = std::to_string(CUBLAS_VER_MAJOR);
    for (const std::string& name : {"libcublasLt.so." + major, "/usr/local/cuda/lib64/libcublasLt.so." + major}) {
      l.handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (l.handle) break;
    }
    if (!l.handle) return l;
    const bool all = take(l.handle, "cublasLtCreate", l.create) && take(l.handle, "cublasLtDestroy", l.destroy) &&
                     take(l.handle, "cublasLtGetVersion", l.version) && take(l.handle, "cublasLtMatmul", l.matmul) &&
                     take(l.handle, "cublasLtMatmulDescCreate", l.create_product) &&
                     take(l.handle, "cublasLtMatmulDescDestroy", l.destroy_product) &&
                     take(l.handle, "cublasLtMatmulDescSetAttribute", l.set_product) &&
                     take(l.handle, "cublasLtMatrixLayoutCreate", l.create_layout) &&
                     take(l.handle, "cublasLtMatrixLayoutDestroy", l.destroy_layout) &&
                     take(l.handle, "cublasLtMatrixLayoutSetAttribute", l.set_layout) &&
                     take(l.handle, "cublasLtMatmulPreferenceCreate", l.create_preference) &&
                     take(l.handle, "cublasLtMatmulPreferenceDestroy", l.destroy_preference) &&
                     take(l.handle, "cublasLtMatmulPreferenceSetAttribute", l.set_preference) &&
                     take(l.handle, "cublasLtMatmulAlgoGetHeuristic", l.find);
    if (!all) l.handle = nullptr;
    return l;
  }();
  return loaded;
}

// Rows are rounded up for the choice of an algorithm: a new length of a prompt seldom needs a new choice.
int64_t bucket_of(int64_t rows) {
  const int64_t step = std::max<int64_t>(64, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows))) / 4);
  return (rows + step - 1) / step * step;
}

struct Key {
  int64_t out, in, w_stride, x_stride, y_stride, rows;
  Into into;
  bool bias, y_float;
  auto operator<=>(const Key&) const = default;
};

// Where a product's operands lie.
struct Operands {
  const void *w, *bias, *x;
  void* y;
};

}  // namespace

struct VendorGemm::State {
  // One kind of product; `works` says that the library has an algorithm.
  struct Plan {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
    bool works = false;
  };

  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  int candidates = 1;
  std::string said;
  std::map<Key, Plan> plans;
  bool listens = false;
  std::map<Key, Operands> heard;  // of no number of rows
  struct Choices {
    int timed = 0, not_the_first = 0;
    double most_gain = 1;
  } choices;

  template <typename T>
  bool set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute, const T& value) const {
    return library().set_product(d, attribute, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  }
  static bool done(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; }

  // Column by column, as the library sees them: w [in, out] and x [in, rows] give y [out, rows].
  bool describe(const Key& k, Plan& p) const {
    const Library& l = library();
    const cudaDataType_t y_type = k.y_float ? CUDA_R_32F : CUDA_R_16BF;
    const bool gelu = k.into == Into::kGeluTanh;
    const cublasLtEpilogue_t epilogue = k.bias ? (gelu ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
                                               : (gelu ? CUBLASLT_EPILOGUE_GELU : CUBLASLT_EPILOGUE_DEFAULT);
    const auto size = [](int64_t n) { return static_cast<uint64_t>(n); };
    return done(l.create_product(&p.product, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
           set(p.product, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T) &&
           set(p.product, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue) &&
           (!k.bias || set(p.product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, y_type)) &&
           done(l.create_layout(&p.w, CUDA_R_16BF, size(k.in), size(k.out), k.w_stride)) &&
           done(l.create_layout(&p.x, CUDA_R_16BF, size(k.in), size(k.rows), k.x_stride)) &&
           done(l.create_layout(&p.y, y_type, size(k.out), size(k.rows), k.y_stride));
  }

  // Sums are not added up from parts: a row should not depend on the length of its chunk more than it must.
  std::vector<cublasLtMatmulAlgo_t> find(const Plan& p, int most) const {
    const Library& l = library();
    const size_t bytes = kWorkspaceBytes;
    const uint32_t no_parts = CUBLASLT_REDUCTION_SCHEME_NONE;
    cublasLtMatmulPreference_t preference = nullptr;
    if (!done(l.create_preference(&preference))) return {};
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
    int count = 0;
    const bool asked =
        done(l.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes))) &&
        done(l.set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_parts, sizeof(no_parts))) &&
        done(l.find(handle, p.product, p.w, p.x, p.y, p.y, preference, most, found.data(), &count));
    l.destroy_preference(preference);
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; asked && i < count; ++i) {
      if (done(found[static_cast<size_t>(i)].state)) algorithms.push_back(found[static_cast<size_t>(i)].algo);
    }
    return algorithms;
  }

  Plan make(const Key& k) const {
    Plan p;
    if (!describe(k, p)) return p;
    const auto algorithms = find(p, 1);
    p.works = !algorithms.empty();
    if (p.works) p.algorithm = algorithms[0];
    return p;
  }

  bool set_operands(const Plan& p, const Operands& o, int64_t rows) const {
    const uint64_t columns = static_cast<uint64_t>(rows);
    for (cublasLtMatrixLayout_t layout : {p.x, p.y}) {
      if (!done(library().set_layout(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &columns, sizeof(columns)))) return false;
    }
    return !o.bias || set(p.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
  }
  bool run(const Queue& queue, const Plan& p, const Operands& o, Into into) const {
    const float one = 1, old = into == Into::kAdd ? 1 : 0;
    return done(library().matmul(handle, p.product, &one, o.w, p.w, o.x, p.x, &old, o.y, p.y, o.y, p.y, &p.algorithm,
                                 workspace, kWorkspaceBytes, queue.stream));
  }

  // The candidate that takes the least time, unless the library's first choice is about as fast.
  void choose_by_time(const Queue& queue, const Key& k, const Operands& o, Plan& p) {
    constexpr double kWorth = 0.97;
    constexpr int kRuns = 3;
    double first = 0, least = INFINITY;
    cublasLtMatmulAlgo_t best = p.algorithm;
    for (const cublasLtMatmulAlgo_t& algorithm : find(p, candidates)) {
      p.algorithm = algorithm;
      bool works = true;
      const double seconds = median_seconds(queue, kRuns, [&] { works &= run(queue, p, o, k.into); });
      if (!works) continue;
      if (first == 0) first = seconds;
      if (seconds >= least || (least < INFINITY && seconds > first * kWorth)) continue;
      least = seconds;
      best = algorithm;
    }
    p.algorithm = best;
    ++choices.timed;
    if (least >= first) return;
    ++choices.not_the_first;
    choices.most_gain = std::max(choices.most_gain, first / least);
  }

  void drop(const Plan& p) const {
    for (cublasLtMatrixLayout_t layout : {p.w, p.x, p.y}) {
      if (layout) library().destroy_layout(layout);
    }
    if (p.product) library().destroy_product(p.product);
  }
};

VendorGemm::VendorGemm(void* workspace, int candidates) : state_(std::make_unique<State>()) {
  const Library& l = library();
  state_->workspace = workspace;
  state_->candidates = candidates;
  if (!l.handle) {
    state_->said = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR) + " was not found: products by own kernels";
  } else if (l.create(&state_->handle) != CUBLAS_STATUS_SUCCESS) {
    state_->handle = nullptr;
    state_->said = "cuBLASLt does not start on this device: products by own kernels";
  } else {
    const size_t version = l.version();
    state_->said = "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100);
  }
}

VendorGemm::~VendorGemm() {
  for (const auto& [key, plan] : state_->plans) state_->drop(plan);
  if (state_->handle) library().destroy(state_->handle);
}

std::string VendorGemm::state() const {
  const State::Choices& c = state_->choices;
  if (c.timed == 0) return state_->said;
  std::string text = state_->said + ", " + std::to_string(c.timed) +
                     " kinds timed, another than its first choice is faster for " + std::to_string(c.not_the_first);
  if (c.not_the_first > 0) text += ", by up to " + std::to_string(std::lround((c.most_gain - 1) * 100)) + " %";
  return text;
}

bool VendorGemm::is_there() const {
  return state_->handle != nullptr;
}

bool VendorGemm::multiply(const Queue& queue, const CudaLinear& w, Tensor x, Into into, Tensor out) {
  State& s = *state_;
  const bool y_float = out.dtype == DType::kF32;
  const bool can = into == Into::kStore || (into == Into::kAdd && y_float) || (into == Into::kGeluTanh && !y_float);
  const bool aligned = x.stride % 8 == 0 && w.in % 8 == 0 && out.stride % 8 == 0 && w.out % 8 == 0 &&
                       reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && reinterpret_cast<uintptr_t>(out.data) % 16 == 0;
  if (!s.handle || !can || !aligned) return false;
  Key key{w.out, w.in, w.stride, x.stride, out.stride, 0, into, w.bias != nullptr, y_float};
  const void* bias = w.bias && !y_float ? static_cast<const void*>(w.bias_bf16) : w.bias;
  const Operands operands = {w.weights, bias, x.data, out.data};
  if (s.listens) s.heard.emplace(key, operands);
  key.rows = bucket_of(x.rows);
  auto found = s.plans.find(key);
  if (found == s.plans.end()) found = s.plans.emplace(key, s.make(key)).first;
  State::Plan& plan = found->second;
  plan.works = plan.works && s.set_operands(plan, operands, x.rows) && s.run(queue, plan, operands, into);
  return plan.works;
}

void VendorGemm::listen() {
  state_->listens = true;
}

void VendorGemm::warm_up(const Queue& queue, int64_t most_rows, Room room) {
  State& s = *state_;
  s.listens = false;
  const auto bytes = [](int64_t stride, int64_t rows, bool is_float) { return stride * rows * (is_float ? 4 : 2); };
  for (auto& [heard, operands] : s.heard) {
    const Operands o = {operands.w, operands.bias, room.x, room.y};
    for (int64_t rows = bucket_of(1); rows <= bucket_of(most_rows); rows = bucket_of(rows + 1)) {
      if (std::max(bytes(heard.x_stride, rows, false), bytes(heard.y_stride, rows, heard.y_float)) > room.bytes) break;
      Key key = heard;
      key.rows = rows;
      auto& plan = s.plans[key];
      if (!plan.product) plan = s.make(key);
      plan.works = plan.works && s.set_operands(plan, o, rows);
      if (plan.works && s.candidates > 1) s.choose_by_time(queue, key, o, plan);
      plan.works = plan.works && s.run(queue, plan, o, key.into);
    }
  }
  s.heard.clear();
}

}  // namespace vireo::cuda

#else

namespace vireo::cuda {

struct VendorGemm::State {
  std::string said = "built without cublasLt.h: products by own kernels";
};

VendorGemm::VendorGemm(void*, int) : state_(std::make_unique<State>()) {}
VendorGemm::~VendorGemm() = default;
std::string VendorGemm::state() const {
  return state_->said;
}
bool VendorGemm::is_there() const {
  return false;
}
bool VendorGemm::multiply(const Queue&, const CudaLinear&, Tensor, Into, Tensor) {
  return false;
}
void VendorGemm::listen() {}
void VendorGemm::warm_up(const Queue&, int64_t, Room) {}

}  // namespace vireo::cuda

#endif
