// Memory of one GPU: taken from an arena and given back in the order of one stream, and filled from the host through page-locked
// buffers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/range_allocator.h"
#include "base/thread_pool.h"
#include "cuda/cuda_error.h"

namespace vireo::cuda {

class DeviceMemory : public std::enable_shared_from_this<DeviceMemory> {
 public:
  explicit DeviceMemory(int device);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  cudaStream_t stream() const { return stream_; }
  // Makes the device the calling thread's.
  void use() const { CUDA_CHECK(cudaSetDevice(device_)); }

  // The arena, once: one piece of device memory from which take() is served from then on. Throws Error(kCapacity).
  void reserve(size_t bytes);
  // Uninitialised, 256-byte aligned; what the arena has no room for, and all before there is one, comes from the system. Throws
  // Error(kCapacity). Keeps this object alive.
  std::shared_ptr<void> take(size_t bytes);
  // The same from the system, for what is not planned for.
  std::shared_ptr<void> take_beside(size_t bytes);

  struct Use {
    size_t arena = 0, most_of_arena = 0;  // bytes: its size, and what was taken of it at most
    size_t lacking = 0;                   // what it had no room for, all told
  };
  Use use_of_arena() const;

 private:
  void* take_of_arena(size_t bytes);
  void give_back(void* data);
  std::shared_ptr<void> owned(void* data);

  const int device_;
  cudaStream_t stream_ = nullptr;
  mutable std::mutex mutex_;
  char* arena_ = nullptr;
  size_t arena_bytes_ = 0, lacking_ = 0;
  std::optional<RangeAllocator> ranges_;
};

// Copies host rows to device memory in the order of the stream: threads gather rows in one page-locked buffer while the other is on its
// way.
class Uploader {
 public:
  explicit Uploader(DeviceMemory& memory);
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  // Row r of `to`, `stride` bytes long, becomes `row_bytes` from source(r) and zeros. Returns before the last copies are done;
  // the sources are not needed any more.
  void upload(void* to, int64_t rows, size_t row_bytes, size_t stride,
              const std::function<const void*(int64_t)>& source);
  // The same where write(r, row) makes row r, all of its `stride` bytes.
  void upload(void* to, int64_t rows, size_t stride, const std::function<void(int64_t, char*)>& write);

 private:
  static constexpr size_t kBufferBytes = size_t{32} << 20;
  struct Buffer {
    char* data = nullptr;
    cudaEvent_t done = nullptr;
  };
  Buffer& next();

  DeviceMemory& memory_;
  ThreadPool pool_;
  Buffer buffers_[2];
  int turn_ = 0;
};

}  // namespace vireo::cuda
