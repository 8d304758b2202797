// SPDX-License-Identifier: Apache-2.0
#include "cuda/recording.h"

namespace vireo::cuda {
namespace {

size_t free_bytes() {
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

cudaGraph_t capture(cudaStream_t stream, const std::function<void()>& work) {
  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    throw;
  }
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  return graph;
}

}  // namespace

Recording::Recording(cudaStream_t stream, const std::function<void()>& work) : stream_(stream) {
  const cudaGraph_t graph = capture(stream, work);
  const size_t before = free_bytes();
  const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
  cudaGraphDestroy(graph);
  CUDA_CHECK(made);
  const cudaError_t uploaded = cudaGraphUpload(graph_, stream);
  if (uploaded != cudaSuccess) cudaGraphExecDestroy(graph_);
  CUDA_CHECK(uploaded);
  const size_t after = free_bytes();
  bytes_ = before > after ? before - after : 0;
}

Recording::~Recording() {
  cudaGraphExecDestroy(graph_);
}

void Recording::replay() const {
  CUDA_CHECK(cudaGraphLaunch(graph_, stream_));
}

}  // namespace vireo::cuda
