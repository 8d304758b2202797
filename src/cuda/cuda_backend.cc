// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_backend.h"

#include <cuda_profiler_api.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "base/check.h"
#include "base/host_info.h"
#include "cuda/cuda_context.h"
#include "cuda/tier_layout.h"
#include "ops/host_memory.h"
#include "vireo/error.h"

namespace vireo {
namespace cuda {

double median_seconds(const Queue& queue, int runs, const std::function<void()>& work) {
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  std::vector<float> milliseconds;
  for (int i = 0; i <= runs; ++i) {
    CUDA_CHECK(cudaEventRecord(begin, queue.stream));
    work();
    CUDA_CHECK(cudaEventRecord(end, queue.stream));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i > 0) milliseconds.push_back(ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(milliseconds.begin(), milliseconds.begin() + runs / 2, milliseconds.end());
  return milliseconds[static_cast<size_t>(runs / 2)] * 1e-3;
}

namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

CudaDevice describe(int index) {
  cudaDeviceProp p;
  CUDA_CHECK(cudaGetDeviceProperties(&p, index));
  CudaDevice d{index, p.name, p.major * 10 + p.minor, p.multiProcessorCount, p.totalGlobalMem, 0, p.integrated != 0};
  size_t total = 0, free = 0;
  CUDA_CHECK(cudaSetDevice(index));
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  d.free_bytes = free;
  return d;
}

CudaDevice find_device(int index) {
  std::string reason;
  const auto devices = cuda_devices(reason);
  if (index < static_cast<int>(devices.size())) return devices[static_cast<size_t>(index)];
  const std::string name = "cuda:" + std::to_string(index);
  if (devices.empty()) throw Error(ErrorKind::kDevice, "--device " + name + ": " + reason + "; use --device cpu");
  throw Error(ErrorKind::kDevice, "--device " + name + " is not there: this machine has cuda:0" +
                                      (devices.size() > 1 ? " to cuda:" + std::to_string(devices.size() - 1) : "") +
                                      "; use one of these, or cpu");
}

// The PTX version (87 for compute_87) behind the kernels that the driver took.
int loaded_kernels(const CudaDevice& device, int wanted) {
  const int version = kernels_version();
  if (version == 0) {
    throw Error(ErrorKind::kDevice, "this build has kernels for " + cuda_architectures() + " and " + device.name +
                                        " has compute capability " + std::to_string(device.capability / 10) + "." +
                                        std::to_string(device.capability % 10) +
                                        ": build with -DGPU_ARCH=" + std::to_string(device.capability));
  }
  if (wanted != 0 && version != wanted) {
    throw Error(ErrorKind::kUsage, "--kernels " + std::to_string(wanted) + ": the driver took those for compute_" +
                                       std::to_string(version) + ": build with -DGPU_ARCH=" + std::to_string(wanted));
  }
  return version;
}

class CudaBackend : public CudaBackendBase {
 public:
  CudaBackend(const CudaDevice& device, const CudaOptions& options)
      : device_(device),
        memory_(std::make_shared<DeviceMemory>(device.index)),
        kernels_(loaded_kernels(device, options.kernels)),
        ops_(queue()) {
    sample_memory_ = memory_->take((kGemvRows * (kSampleParts * 2 + 1) + 1) * 4);
    SampleScratch& s = ops_.scratch().sample;
    s.values = static_cast<float*>(sample_memory_.get());
    s.ids = reinterpret_cast<int32_t*>(s.values + kGemvRows * kSampleParts);
    s.counters = s.ids + kGemvRows * kSampleParts;
    clear(s.counters, (kGemvRows + 1) * 4);
    const bool chains = ops_.queue().bulk_copies && attribute(cudaDevAttrCooperativeLaunch, device_.index) != 0;
    if (options.one_launch && chains) reserve_chain();
    if (options.vendor_libraries && options.kernels == 0) {
      vendor_memory_ = memory_->take(VendorGemm::kWorkspaceBytes);
      vendor_gemm_ = std::make_unique<VendorGemm>(vendor_memory_.get(), options.gemm_candidates);
      ops_.use(vendor_gemm_.get());
    }
  }

  std::string name() const override { return "cuda"; }
  std::string description() const override {
    return device_.name + ", kernels " + std::to_string(kernels_) +
           (kernels_ < device_.capability ? " (translated)" : "");
  }
  DType activation_type() const override { return DType::kBF16; }
  DType residual_type() const override { return DType::kF32; }
  DType kv_type() const override { return DType::kBF16; }
  Ops& ops() override { return ops_; }
  CudaOps& cuda_ops() override { return ops_; }
  DeviceMemory& memory() override { return *memory_; }
  void set_cancel(const std::atomic<bool>*) override {}  // what was begun takes milliseconds; callers look between ops

  std::optional<uint64_t> available_memory() const override {
    if (device_.integrated) return available_host_memory();
    memory_->use();
    size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return free;
  }

  OwnBytes own_bytes(int64_t slots, int64_t sequences, const AttentionShape& shape, KvMode mode) const override {
    const uint64_t partials = static_cast<uint64_t>(attend_decode_partials(slots, shape));
    const uint64_t restored = mode == KvMode::kInt8 ? static_cast<uint64_t>(slots) * kv_cols(shape) * 2 * 2 : 0;
    return {partials * 4 + (ops_.scratch().chain.slots ? partials / kGemvRows * 8 : 0) + restored,
            static_cast<uint64_t>(sequences) * kRecordingBytes};
  }
  uint64_t restoring_bytes() const override { return kRestoredWeightBytes; }
  void reserve(uint64_t bytes) override {
    constexpr uint64_t kRounding = 8 << 20;  // what pieces are rounded up by, norms in float32, biases in both types
    memory_->reserve(bytes + kRounding);
  }
  bool keeps_copies_in_host_memory() const override { return device_.integrated; }

  OwnedTensor allocate(int64_t rows, int64_t cols, DType dtype) override {
    const auto data = memory_->take(static_cast<size_t>(rows * cols) * size_of(dtype));
    return {{data.get(), dtype, rows, cols, cols}, data};
  }

  void upload(const void* host, Tensor t) override {
    if (t.rows == 0) return;
    memory_->use();
    const size_t element = size_of(t.dtype), row = static_cast<size_t>(t.cols) * element;
    constexpr int64_t kWorthThreads = 1 << 16;  // bytes
    if (t.stride == t.cols && static_cast<int64_t>(row) <= kWorthThreads &&
        t.rows * static_cast<int64_t>(row) >= kWorthThreads) {
      const char* from = static_cast<const char*>(host);
      const auto source = [&](int64_t r) { return from + static_cast<size_t>(r) * row; };
      return uploader().upload(t.data, t.rows, row, row, source);
    }
    CUDA_CHECK(cudaMemcpy2DAsync(t.data, static_cast<size_t>(t.stride) * element, host, row, row,
                                 static_cast<size_t>(t.rows), cudaMemcpyHostToDevice, memory_->stream()));
    // The host memory is the caller's again.
    CUDA_CHECK(cudaStreamSynchronize(memory_->stream()));
  }

  void download(Tensor t, void* host) override {
    memory_->use();
    const size_t element = size_of(t.dtype), row = static_cast<size_t>(t.cols) * element;
    CUDA_CHECK(cudaMemcpy2DAsync(host, row, t.data, static_cast<size_t>(t.stride) * element, row,
                                 static_cast<size_t>(t.rows), cudaMemcpyDeviceToHost, memory_->stream()));
    CUDA_CHECK(cudaStreamSynchronize(memory_->stream()));
  }

  void copy(Tensor from, Tensor to) override {
    CHECK(from.rows == to.rows && from.cols == to.cols && from.dtype == to.dtype);
    CHECK(from.stride == from.cols && to.stride == to.cols);
    memory_->use();
    CUDA_CHECK(cudaMemcpyAsync(to.data, from.data, static_cast<size_t>(from.size()) * size_of(from.dtype),
                               cudaMemcpyDeviceToDevice, memory_->stream()));
  }

  OwnedKv allocate_kv(int64_t slots, const AttentionShape& shape, KvMode mode) override {
    CHECK(slots % kPageTokens == 0);
    reserve_decode(slots, shape);
    if (mode == KvMode::kBf16) return zeroed_kv(slots, kv_cols(shape), DType::kBF16);
    // Prefill reads what codes stand for, a layer at a time.
    if (KvLayer& restored = ops_.scratch().restored; !restored.k.data || restored.k.rows < slots) {
      restored_kv_ = zeroed_kv(slots, kv_cols(shape), DType::kBF16);
      restored = restored_kv_.view;
    }
    OwnedKv kv = zeroed_kv(slots, int64_t{shape.kv_heads} * kv_code_bytes(shape), DType::kI8);
    kv.k_scales = zeros(slots, shape.kv_heads, DType::kBF16);
    kv.v_scales = zeros(slots, shape.kv_heads, DType::kBF16);
    kv.view.k_scales = kv.k_scales.view;
    kv.view.v_scales = kv.v_scales.view;
    return kv;
  }

  void read_kv(KvLayer cache, const AttentionShape& shape, int64_t slot, float* k, float* v) override {
    const int64_t page = slot / kPageTokens;
    for (int h = 0; h < shape.kv_heads; ++h) {
      const int64_t at = (page * shape.kv_heads + h) * kPageTokens + slot % kPageTokens;
      read_head(cache.k, cache.k_scales, at, shape, k + int64_t{h} * shape.head_dim);
      read_head(cache.v, cache.v_scales, at, shape, v + int64_t{h} * shape.head_dim);
    }
  }

  std::unique_ptr<Linear> place(const std::vector<HostTensor>& parts, const std::vector<HostTensor>& biases,
                                const Role& role) override {
    int64_t out = 0;
    for (const HostTensor& t : parts) out += t.shape[0];
    auto w = make_linear(parts[0].shape[1], out, 1, role);
    const auto host = make_host_linear(parts, {}, role);
    const bool has_rows = std::ranges::all_of(parts, [](const HostTensor& t) { return t.data != nullptr; });
    if (w->weights) has_rows ? fill(*w, 0, parts) : fill_decoded(*w, 0, *host);
    if (role.tier != Tier::kBf16) fill_codes(*w, *host, role.tier);
    if (biases.empty()) return w;
    std::vector<float> values;
    for (const HostTensor& b : biases) append_floats(b, values);
    CHECK(static_cast<int64_t>(values.size()) == out);
    w->bias_memory = place_floats(values);
    w->bias = w->bias_memory.view.row<float>(0);
    std::vector<bf16> rounded;
    rounded.reserve(values.size());
    for (float v : values) rounded.push_back(to_bf16(v));
    w->bias_bf16_memory = allocate(1, out, DType::kBF16);
    upload(rounded.data(), w->bias_bf16_memory.view);
    w->bias_bf16 = w->bias_bf16_memory.view.row<bf16>(0);
    return w;
  }

  std::unique_ptr<Linear> place_experts(const std::vector<std::vector<HostTensor>>& experts, ExpertLayout layout,
                                        const Role& role) override {
    const bool turned = layout == ExpertLayout::kInOut;
    int64_t out = 0;
    for (const HostTensor& t : experts[0]) out += t.shape[turned ? 1 : 0];
    auto w = make_linear(experts[0][0].shape[turned ? 0 : 1], out, static_cast<int64_t>(experts.size()), role);
    const auto host = make_host_experts(experts, layout, role);
    for (size_t e = 0; w->weights && e < experts.size(); ++e) {
      const int64_t group = static_cast<int64_t>(e);
      if (!experts[e][0].data) {
        fill_decoded(*w, group, *host);
      } else if (turned) {
        CHECK(experts[e].size() == 1);
        fill_turned(*w, group, experts[e][0]);
      } else {
        fill(*w, group, experts[e]);
      }
    }
    if (role.tier != Tier::kBf16) fill_codes(*w, *host, role.tier);
    return w;
  }

  OwnedTensor place_vector(const HostTensor& vector) override {
    std::vector<float> values;
    append_floats(vector, values);
    return place_floats(values);
  }

  OwnedTensor place_table(const HostTensor& table) override {
    CHECK(table.dtype == DType::kBF16 && table.shape.size() == 2);
    OwnedTensor t = allocate(table.shape[0], table.shape[1], DType::kBF16);
    upload(table.data, t.view);
    return t;
  }

  void tune() override {
    std::map<std::pair<int64_t, int64_t>, Placed> shapes;
    for (const OwningLinear* w : *placed_) {
      if (w->decodes && w->weights && w->group_size() >= kWorthTuning) shapes[{w->out, w->in}].push_back(w);
    }
    for (const auto& [shape, linears] : shapes) {
      if (!ops_.shapes().count(shape)) ops_.shapes()[shape] = fastest(linears);
    }
  }

  void rehearse(int64_t most_rows, const std::function<void()>& work) override {
    if (vendor_gemm_) vendor_gemm_->listen();
    work();
    if (!vendor_gemm_ || !vendor_gemm_->is_there()) return wait();
    constexpr int64_t kMostColumns = 32768;
    VendorGemm::Room room;
    room.bytes = std::min(most_rows * kMostColumns * 2, static_cast<int64_t>(available_memory().value_or(0)) / 8);
    std::shared_ptr<void> memory;
    try {
      memory = memory_->take_beside(static_cast<size_t>(2 * room.bytes + 16));
    } catch (const Error& e) {
      // The first request of a size then waits for what was not readied.
      if (e.kind() != ErrorKind::kCapacity) throw;
      return wait();
    }
    // Any small numbers, but not zeros, with which products are faster.
    CUDA_CHECK(cudaMemsetAsync(memory.get(), 0x3a, static_cast<size_t>(2 * room.bytes), memory_->stream()));
    room.x = memory.get();
    room.y = static_cast<char*>(memory.get()) + room.bytes / 16 * 16;
    vendor_gemm_->warm_up(ops_.queue(), most_rows, room);
    wait();
  }

  std::string shortfall() const {
    return vendor_gemm_ && !vendor_gemm_->is_there() ? "slower prefill: " + vendor_gemm_->state() : "";
  }

  // The arena, the vendor's library, the tuned shapes of products.
  std::vector<std::string> notes() const override {
    std::vector<std::string> lines;
    if (const DeviceMemory::Use use = memory_->use_of_arena(); use.arena > 0) {
      lines.push_back("arena of " + std::to_string(use.arena >> 20) + " MiB, at most " +
                      std::to_string(use.most_of_arena >> 20) + " used" +
                      (use.lacking > 0 ? ", too small by " + std::to_string(use.lacking >> 10) + " KiB" : ""));
    }
    if (vendor_gemm_) lines.push_back("products of many rows: " + vendor_gemm_->state());
    for (const auto& [shape, cut] : ops_.shapes()) {
      lines.push_back("product " + std::to_string(shape.first) + " x " + std::to_string(shape.second) + ": depth " +
                      std::to_string(cut.depth) + ", " + std::to_string(cut.blocks_per_processor) +
                      " blocks per multiprocessor");
    }
    return lines;
  }

  void mark_timed(bool begins) override { begins ? cudaProfilerStart() : cudaProfilerStop(); }

  void wait() override {
    memory_->use();
    CUDA_CHECK(cudaStreamSynchronize(memory_->stream()));
  }

  double measure_product_rate() override {
    return product_rate([&](const Linear& w, Tensor x, Tensor y) { ops_.linear(w, x, y); });
  }
  double measure_own_product_rate() override {
    if (!vendor_gemm_ || !vendor_gemm_->is_there()) return 0;
    return product_rate([&](const Linear& w, Tensor x, Tensor y) {
      gemm(ops_.queue(), static_cast<const CudaLinear&>(w), x, Into::kStore, y);
    });
  }

  double product_rate(const std::function<void(const Linear&, Tensor, Tensor)>& multiply) {
    constexpr int64_t kRows = 4096, kOut = 6144, kIn = 2048;
    std::vector<bf16> values(kOut * kIn);
    uint32_t state = 1;
    for (bf16& v : values)
      v = to_bf16(static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1);
    const auto w = place({{"w", DType::kBF16, {kOut, kIn}, values.data()}}, {}, {});
    const OwnedTensor x = allocate(kRows, kIn, DType::kBF16), y = allocate(kRows, kOut, DType::kBF16);
    upload(values.data(), x.view);
    return 2.0 * kRows * kOut * kIn / median_seconds(ops_.queue(), 9, [&] { multiply(*w, x.view, y.view); });
  }

  double measure_read_rate() override {
    const int64_t most = static_cast<int64_t>(available_memory().value_or(0)) / 2;
    const int64_t bytes = std::min(int64_t{4} << 30, most) / 4096 * 4096;
    if (bytes <= 0) return 0;
    const auto data = memory_->take_beside(static_cast<size_t>(bytes) + 4096);
    CUDA_CHECK(cudaMemsetAsync(data.get(), 0x5a, static_cast<size_t>(bytes), memory_->stream()));
    uint32_t* sums = reinterpret_cast<uint32_t*>(static_cast<char*>(data.get()) + bytes);
    return static_cast<double>(bytes) /
           median_seconds(ops_.queue(), 9, [&] { read_all(ops_.queue(), data.get(), bytes, sums); });
  }

 private:
  struct OwningLinear;
  using Placed = std::vector<const OwningLinear*>;
  // A CudaLinear that owns its memory, and is listed while it lives.
  struct OwningLinear : CudaLinear {
    OwningLinear(int64_t in_features, int64_t out_features, int64_t group_count, Order row_order,
                 std::shared_ptr<Placed> list)
        : CudaLinear(in_features, out_features, group_count, row_order), placed(std::move(list)) {
      placed->push_back(this);
    }
    ~OwningLinear() override { std::erase(*placed, this); }
    const std::shared_ptr<Placed> placed;
    std::shared_ptr<void> memory, coded_memory;
    OwnedTensor bias_memory, bias_bf16_memory;
    bool decodes = false;  // read once per token
  };

  Queue queue() const {
    Queue q;
    q.stream = memory_->stream();
    q.multiprocessors = device_.multiprocessors;
    q.early_start = q.bulk_copies = kernels_ >= 90;
    q.warpgroups = kernels_ == 90 && device_.capability == 90;
    // Kernels have some of their own beside what a launch asks for.
    q.block_shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device_.index) - (1 << 10);
    return q;
  }

  // The cut with which one row times several of the layers' weights, one after the other, takes the least time.
  GemvShape fastest(const Placed& linears) {
    constexpr size_t kMostLinears = 8;
    const size_t count = std::min(kMostLinears, linears.size());
    const OwnedTensor x = allocate(1, linears[0]->in, DType::kBF16), y = allocate(1, linears[0]->out, DType::kBF16);
    clear(x.view.data, static_cast<size_t>(x.view.cols) * 2);
    const Queue& queue = ops_.queue();
    const auto gemv = queue.bulk_copies ? gemv_bulk : gemv_copies;
    // One block per multiprocessor is fastest alone and slowest among others: early starts let the blocks pile up on some.
    const std::vector<int> blocks = queue.early_start ? std::vector<int>{2} : std::vector<int>{1, 2};
    GemvShape best;
    double least = INFINITY;
    for (const int depth : queue.bulk_copies ? std::vector<int>{2, 3, 4, 5, 6} : std::vector<int>{4, 8}) {
      for (const int per_processor : blocks) {
        const GemvShape cut{.depth = depth, .warps = 8, .blocks_per_processor = per_processor};
        const double seconds = median_seconds(queue, 5, [&] {
          for (size_t i = 0; i < count; ++i) gemv(queue, *linears[i], x.view, nullptr, Into::kStore, y.view, cut);
        });
        if (seconds >= least) continue;
        least = seconds;
        best = cut;
      }
    }
    return best;
  }

  static int64_t kv_cols(const AttentionShape& shape) { return int64_t{shape.kv_heads} * shape.head_dim; }

  OwnedTensor zeros(int64_t rows, int64_t cols, DType dtype) {
    OwnedTensor t = allocate(rows, cols, dtype);
    clear(t.view.data, static_cast<size_t>(t.view.size()) * size_of(dtype));
    return t;
  }
  OwnedKv zeroed_kv(int64_t slots, int64_t cols, DType dtype) {
    OwnedKv kv{{}, zeros(slots, cols, dtype), zeros(slots, cols, dtype)};
    kv.view = {kv.k.view, kv.v.view};
    return kv;
  }

  // Row `at` of all heads' rows, as floats.
  void read_head(Tensor cache, Tensor scales, int64_t at, const AttentionShape& shape, float* to) {
    const int64_t n = shape.head_dim;
    if (!scales.data) {
      std::vector<bf16> row(static_cast<size_t>(n));
      download({cache.row<bf16>(0) + at * n, DType::kBF16, 1, n, n}, row.data());
      std::ranges::transform(row, to, [](bf16 v) { return to_float(v); });
      return;
    }
    const int64_t bytes = kv_code_bytes(shape);
    std::vector<uint8_t> row(static_cast<size_t>(bytes)), codes(static_cast<size_t>(n));
    bf16 scale;
    download({cache.row<uint8_t>(0) + at * bytes, DType::kI8, 1, bytes, bytes}, row.data());
    for (int64_t d = 0; d < n; ++d) {
      codes[static_cast<size_t>(d)] = row[static_cast<size_t>(kv_code_place(d, at % kPageTokens, shape))];
    }
    download({scales.row<bf16>(0) + at, DType::kBF16, 1, 1, 1}, &scale);
    for (size_t i = 0; i < codes.size(); ++i) {
      const bool negative = codes[i ^ 1] > 127;
      to[i] = static_cast<float>(codes[i] & 127) * (negative ? -to_float(scale) : to_float(scale));
    }
  }

  void clear(void* data, size_t bytes) { CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, memory_->stream())); }

  void reserve_chain() {
    constexpr int64_t kSlots = 1 << 21;  // a step of the largest model takes 2.06 million
    constexpr size_t kBytes = 2 * kSlots * 4, kAll = kBytes + kChainCounters * 4;
    chain_memory_ = memory_->take(kAll);
    clear(chain_memory_.get(), kAll);
    CUDA_CHECK(cudaMemsetAsync(chain_memory_.get(), 0xff, kBytes, memory_->stream()));
    ChainScratch& s = ops_.scratch().chain;
    s.slots = static_cast<uint32_t*>(chain_memory_.get());
    s.slot_count = kSlots;
    s.counters = reinterpret_cast<int32_t*>(s.slots + 2 * kSlots);
  }

  void reserve_decode(int64_t slots, const AttentionShape& shape) {
    const int64_t partials = attend_decode_partials(slots, shape);
    DecodeScratch& s = ops_.scratch().decode;
    if (partials > partials_) {
      partials_memory_ = memory_->take(static_cast<size_t>(partials) * 4);
      s.partials = static_cast<float*>(partials_memory_.get());
      partials_ = partials;
    }
    ChainScratch& chain = ops_.scratch().chain;
    if (const int64_t words = partials / kGemvRows; chain.slots && words > chain.partial_count) {
      chain_partials_memory_ = memory_->take(static_cast<size_t>(words) * 8);
      chain.partials = static_cast<uint64_t*>(chain_partials_memory_.get());
      chain.partial_count = words;
      clear(chain.partials, static_cast<size_t>(words) * 8);
    }
    const int counters = kGemvRows * shape.kv_heads;
    if (counters <= counters_) return;
    counters_memory_ = memory_->take(static_cast<size_t>(counters) * 4);
    s.counters = static_cast<int32_t*>(counters_memory_.get());
    clear(s.counters, static_cast<size_t>(counters) * 4);
    counters_ = counters;
  }

  Uploader& uploader() {
    if (!uploader_) uploader_ = std::make_unique<Uploader>(*memory_);
    return *uploader_;
  }

  std::unique_ptr<OwningLinear> make_linear(int64_t in, int64_t out, int64_t groups, const Role& role) {
    check_inputs(in, role);
    const bool pairs = role.projection == "gate_up" && out % 2 == 0;
    const auto order = pairs ? CudaLinear::Order::kPairs : CudaLinear::Order::kPlain;
    auto w = std::make_unique<OwningLinear>(in, out, groups, order, placed_);
    w->decodes = groups == 1 && !role.projection.empty();
    if (role.codes_alone) {
      CHECK(role.tier != Tier::kBf16);
      if (groups == 1) reserve_restored_weights();
      return w;
    }
    w->memory = memory_->take(static_cast<size_t>(groups * w->group_size()) * sizeof(bf16));
    w->weights = static_cast<bf16*>(w->memory.get());
    return w;
  }

  void check_inputs(int64_t in, const Role& role) const {
    const int64_t most = most_coded_inputs(ops_.queue());
    if (role.tier == Tier::kBf16 || in <= most) return;
    throw Error(ErrorKind::kCapacity, (role.layer < 0 ? "" : "L" + std::to_string(role.layer) + ".") + role.projection +
                                          " has " + std::to_string(in) + " inputs, and in tier " +
                                          std::string(tier_name(role.tier)) + " " + device_.name + " multiplies " +
                                          std::to_string(most) + " at most: load it with --wq " + role.projection +
                                          "=bf16, or use --device cpu");
  }

  void reserve_restored_weights() {
    if (restored_weights_memory_) return;
    restored_weights_memory_ = memory_->take(static_cast<size_t>(kRestoredWeightBytes));
    ops_.scratch().restored_weights = static_cast<bf16*>(restored_weights_memory_.get());
  }

  // Rows of the stacked parts, in the order of the linear.
  static std::vector<const bf16*> rows_of(const CudaLinear& w, const std::vector<HostTensor>& parts) {
    std::vector<const bf16*> outputs, rows;
    for (const HostTensor& t : parts) {
      CHECK(t.dtype == DType::kBF16 && t.shape.size() == 2 && t.shape[1] == w.in);
      for (int64_t r = 0; r < t.shape[0]; ++r) outputs.push_back(static_cast<const bf16*>(t.data) + r * w.in);
    }
    for (int64_t row = 0; row < w.out; ++row) rows.push_back(outputs[static_cast<size_t>(w.output_of(row))]);
    return rows;
  }

  void fill(const CudaLinear& w, int64_t group, const std::vector<HostTensor>& parts) {
    const std::vector<const bf16*> rows = rows_of(w, parts);
    uploader().upload(w.weights + group * w.group_size(), w.out, static_cast<size_t>(w.in) * 2,
                      static_cast<size_t>(w.stride) * 2,
                      [&](int64_t row) -> const void* { return rows[static_cast<size_t>(row)]; });
  }

  // What the codes of parts without rows stand for.
  void fill_decoded(const CudaLinear& w, int64_t group, const HostLinear& host) {
    const size_t row_bytes = static_cast<size_t>(w.in) * 2, stride = static_cast<size_t>(w.stride) * 2;
    uploader().upload(w.weights + group * w.group_size(), w.out, stride, [&](int64_t row, char* to) {
      gather_rows(host.parts[static_cast<size_t>(group)], w.output_of(row), 1, reinterpret_cast<bf16*>(to));
      std::memset(to + row_bytes, 0, stride - row_bytes);
    });
  }

  // A tile's rows in a tier, outputs that are neighbours made together.
  class TileRows {
   public:
    TileRows(const CudaLinear& w, const std::vector<WeightMatrix>& parts, Tier tier, int64_t first)
        : count_(std::min<int64_t>(kChunkOuts, w.out - first)),
          row_codes_(code_bytes(tier, w.in)),
          groups_(tier_groups(w.in)),
          stride_(w.order == CudaLinear::Order::kPairs ? 2 : 1),
          codes_(static_cast<size_t>(count_ * row_codes_)),
          scales_(static_cast<size_t>(count_ * groups_)) {
      for (int64_t o = 0, at = 0; o < stride_; ++o) {
        const int64_t n = (count_ - o + stride_ - 1) / stride_;
        tier_rows(parts, tier, w.output_of(first + o), n, codes_.data() + at * row_codes_,
                  scales_.data() + at * groups_);
        at += n;
      }
    }

    bool copy(int o, uint8_t* codes, bf16* scales) const {
      if (o >= count_) return false;
      const int64_t at = o / stride_ + o % stride_ * ((count_ + 1) / 2);
      std::copy_n(codes_.data() + at * row_codes_, row_codes_, codes);
      std::copy_n(scales_.data() + at * groups_, groups_, scales);
      return true;
    }

   private:
    const int64_t count_, row_codes_, groups_, stride_;
    std::vector<uint8_t> codes_;
    std::vector<bf16> scales_;
  };

  // The same rows in a tier, by tiles.
  void fill_codes(OwningLinear& w, const HostLinear& host, Tier tier) {
    const int64_t tiles = (w.out + kChunkOuts - 1) / kChunkOuts;
    // With scales in bf16 these two are one.
    const Tier layout = tier == Tier::kNvfp4 ? Tier::kW4 : tier;
    w.coded = {nullptr, chunks_of(w.in), layout};
    const size_t bytes = static_cast<size_t>(w.coded.chunks) * static_cast<size_t>(chunk_bytes(layout));
    w.coded_memory = memory_->take(static_cast<size_t>(w.groups * tiles) * bytes);
    uploader().upload(w.coded_memory.get(), w.groups * tiles, bytes, [&](int64_t tile, char* to) {
      const TileRows rows(w, host.parts[static_cast<size_t>(tile / tiles)], tier, tile % tiles * kChunkOuts);
      const auto row = [&](int o, uint8_t* codes, bf16* scales) { return rows.copy(o, codes, scales); };
      pack_tile(layout, row, w.in, reinterpret_cast<uint8_t*>(to));
    });
    w.coded.data = static_cast<const uint8_t*>(w.coded_memory.get());
  }

  // A matrix [in, out] becomes rows of outputs on the device.
  void fill_turned(const CudaLinear& w, int64_t group, const HostTensor& t) {
    CHECK(t.dtype == DType::kBF16 && t.shape[0] == w.in && t.shape[1] == w.out);
    const auto staged = memory_->take(t.bytes());
    uploader().upload(staged.get(), w.in, static_cast<size_t>(w.out) * 2, static_cast<size_t>(w.out) * 2,
                      [&](int64_t r) -> const void* { return static_cast<const bf16*>(t.data) + r * w.out; });
    bf16* to = w.weights + group * w.group_size();
    clear(to, static_cast<size_t>(w.group_size()) * 2);
    const bf16* from = static_cast<const bf16*>(staged.get());
    if (w.order == CudaLinear::Order::kPlain) return transpose(ops_.queue(), from, w.out, w.in, w.out, to, w.stride);
    const int64_t half = w.out / 2;
    transpose(ops_.queue(), from, w.out, w.in, half, to, 2 * w.stride);
    transpose(ops_.queue(), from + half, w.out, w.in, half, to + w.stride, 2 * w.stride);
  }

  static void append_floats(const HostTensor& t, std::vector<float>& values) {
    CHECK(t.dtype == DType::kBF16);
    const bf16* from = static_cast<const bf16*>(t.data);
    for (int64_t i = 0; i < t.size(); ++i) values.push_back(to_float(from[i]));
  }

  OwnedTensor place_floats(const std::vector<float>& values) {
    OwnedTensor t = allocate(1, static_cast<int64_t>(values.size()), DType::kF32);
    upload(values.data(), t.view);
    return t;
  }

  static constexpr int64_t kWorthTuning = 1 << 19;  // elements
  // Of the step of one number of rows, as measured on one H200, rounded up.
  static constexpr uint64_t kRecordingBytes = 1 << 20;

  const CudaDevice device_;
  const std::shared_ptr<DeviceMemory> memory_;
  const int kernels_;
  CudaOps ops_;
  const std::shared_ptr<Placed> placed_ = std::make_shared<Placed>();
  std::unique_ptr<Uploader> uploader_;
  std::shared_ptr<void> vendor_memory_;
  std::unique_ptr<VendorGemm> vendor_gemm_;
  std::shared_ptr<void> sample_memory_, chain_memory_, chain_partials_memory_, partials_memory_, counters_memory_;
  int64_t partials_ = 0;
  OwnedKv restored_kv_;
  std::shared_ptr<void> restored_weights_memory_;
  int counters_ = 0;
};

}  // namespace
}  // namespace cuda

// The driver then takes no machine code from the program, only what it can translate.
void choose_cuda_kernels(int kernels) {
  if (kernels != 0) setenv("CUDA_FORCE_PTX_JIT", "1", 1);
}

std::vector<CudaDevice> cuda_devices(std::string& reason) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (error == cudaErrorInsufficientDriver) {
    reason = "no NVIDIA driver, or one that is older than this build's CUDA";
    return {};
  }
  if (error != cudaSuccess || count == 0) {
    reason = error == cudaSuccess || error == cudaErrorNoDevice ? "the NVIDIA driver shows no GPU"
                                                                : cudaGetErrorString(error);
    return {};
  }
  std::vector<CudaDevice> devices;
  devices.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) devices.push_back(cuda::describe(i));
  return devices;
}

std::string cuda_architectures() {
  return VIREO_GPU_ARCH;
}

std::string cuda_shortfall(Backend& backend) {
  return dynamic_cast<cuda::CudaBackend&>(backend).shortfall();
}

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  choose_cuda_kernels(options.kernels);
  const CudaDevice device = cuda::find_device(options.device);
  return std::make_unique<cuda::CudaBackend>(device, options);
}

}  // namespace vireo
