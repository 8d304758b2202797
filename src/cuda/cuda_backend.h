// The CUDA backend: Ops on one stream of one NVIDIA GPU. Weights are BF16, activations BF16, the residual stream and logits
// float32, the KV cache BF16.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/runner.h"

namespace vireo {

struct CudaOptions {
  int device = 0;   // as the CUDA runtime counts
  int kernels = 0;  // 87: the compute_87 code, translated for the device by its driver; 0: the best that was built
  // A recorded step of one row is one launch (compute capability 9.0) instead of one for each op.
  bool one_launch = true;
  // The vendor's libraries where they are found, except with kernels 87; without them own kernels do the same.
  bool vendor_libraries = true;
  int gemm_candidates = 1;  // algorithms of a vendor's library among which timing chooses; 1: its first choice
};

// Has the driver take the compute_87 code where kernels is 87. It listens only before it is first used: call this before anything
// else here.
void choose_cuda_kernels(int kernels);

struct CudaDevice {
  int index = 0;
  std::string name;
  int capability = 0;  // 87 for 8.7
  int multiprocessors = 0;
  uint64_t memory_bytes = 0;
  uint64_t free_bytes = 0;
  bool integrated = false;  // shares the host's memory
};

// The devices that the driver shows. When there is none, `reason` says why in a few words.
std::vector<CudaDevice> cuda_devices(std::string& reason);
// What GPU_ARCH was at build time: "80, 87, 89, 90a, 110f, 120f".
std::string cuda_architectures();
// What a made backend goes without, and what that means, in one line; empty: nothing.
std::string cuda_shortfall(Backend& backend);

// Throws Error(kDevice) when there is no such device, or the build has no code for it: it names both and the CMake variable.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);
// Records the decode step once per number of rows as a CUDA graph and replays it. The backend must be a CUDA backend.
std::unique_ptr<Runner> make_graph_runner(Backend& backend, Forward forward, const RunnerShape& shape);

}  // namespace vireo
