// SPDX-License-Identifier: Apache-2.0
#include "cuda/device_memory.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace vireo::cuda {

DeviceMemory::DeviceMemory(int device) : device_(device) {
  use();
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

DeviceMemory::~DeviceMemory() {
  cudaSetDevice(device_);
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
  cudaFree(arena_);
}

void DeviceMemory::reserve(size_t bytes) {
  CHECK(!arena_);
  use();
  bytes = (bytes + RangeAllocator::kAlignment - 1) / RangeAllocator::kAlignment * RangeAllocator::kAlignment;
  void* data = nullptr;
  CUDA_CHECK(cudaMalloc(&data, bytes));
  const std::lock_guard lock(mutex_);
  arena_ = static_cast<char*>(data);
  arena_bytes_ = bytes;
  ranges_.emplace(bytes);
}

void* DeviceMemory::take_of_arena(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!ranges_) return nullptr;
  if (const auto offset = ranges_->take(bytes)) return arena_ + *offset;
  lacking_ += bytes;
  return nullptr;
}

// Work that still uses the memory is ahead of whoever takes it next: all is in the order of the stream.
void DeviceMemory::give_back(void* data) {
  char* at = static_cast<char*>(data);
  if (at < arena_ || at >= arena_ + arena_bytes_) {
    // Errors of giving back show in the next call.
    cudaSetDevice(device_);
    cudaFree(data);
    return;
  }
  const std::lock_guard lock(mutex_);
  ranges_->give_back(static_cast<uint64_t>(at - arena_));
}

std::shared_ptr<void> DeviceMemory::owned(void* data) {
  return {data, [self = shared_from_this()](void* p) { self->give_back(p); }};
}

std::shared_ptr<void> DeviceMemory::take(size_t bytes) {
  use();
  bytes = std::max<size_t>(bytes, 16);
  void* data = take_of_arena(bytes);
  if (!data) return take_beside(bytes);
  return owned(data);
}

std::shared_ptr<void> DeviceMemory::take_beside(size_t bytes) {
  use();
  void* data = nullptr;
  CUDA_CHECK(cudaMalloc(&data, bytes));
  return owned(data);
}

DeviceMemory::Use DeviceMemory::use_of_arena() const {
  const std::lock_guard lock(mutex_);
  return {arena_bytes_, ranges_ ? ranges_->most_used() : 0, lacking_};
}

Uploader::Uploader(DeviceMemory& memory) : memory_(memory), pool_(std::min(16, usable_cpus())) {
  for (Buffer& b : buffers_) {
    CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&b.data), kBufferBytes));
    CUDA_CHECK(cudaEventCreateWithFlags(&b.done, cudaEventDisableTiming));
  }
}

Uploader::~Uploader() {
  for (Buffer& b : buffers_) {
    cudaEventSynchronize(b.done);
    cudaEventDestroy(b.done);
    cudaFreeHost(b.data);
  }
}

Uploader::Buffer& Uploader::next() {
  Buffer& b = buffers_[turn_++ % 2];
  CUDA_CHECK(cudaEventSynchronize(b.done));
  return b;
}

void Uploader::upload(void* to, int64_t rows, size_t row_bytes, size_t stride,
                      const std::function<const void*(int64_t)>& source) {
  CHECK(row_bytes <= stride);
  upload(to, rows, stride, [&](int64_t r, char* row) {
    std::memcpy(row, source(r), row_bytes);
    std::memset(row + row_bytes, 0, stride - row_bytes);
  });
}

void Uploader::upload(void* to, int64_t rows, size_t stride, const std::function<void(int64_t, char*)>& write) {
  CHECK(stride <= kBufferBytes);
  const int64_t rows_at_once = static_cast<int64_t>(kBufferBytes / stride);
  // An item of the pool is about a megabyte: large enough to be worth handing out.
  const int64_t rows_per_item = std::max<int64_t>(1, static_cast<int64_t>((size_t{1} << 20) / stride));
  for (int64_t first = 0; first < rows; first += rows_at_once) {
    const int64_t count = std::min(rows_at_once, rows - first);
    Buffer& b = next();
    pool_.run((count + rows_per_item - 1) / rows_per_item, [&](int64_t item, int) {
      const int64_t end = std::min(count, (item + 1) * rows_per_item);
      for (int64_t r = item * rows_per_item; r < end; ++r) write(first + r, b.data + static_cast<size_t>(r) * stride);
    });
    CUDA_CHECK(cudaMemcpyAsync(static_cast<char*>(to) + static_cast<size_t>(first) * stride, b.data,
                               static_cast<size_t>(count) * stride, cudaMemcpyHostToDevice, memory_.stream()));
    CUDA_CHECK(cudaEventRecord(b.done, memory_.stream()));
  }
}

}  // namespace vireo::cuda
