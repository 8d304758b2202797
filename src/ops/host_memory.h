// Memory, copies and small weights of the backends that compute on the host.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/backend.h"

namespace vireo {

// The part of a Backend that is the same for all backends in host memory.
class HostBackend : public Backend {
 public:
  std::optional<uint64_t> available_memory() const override;
  OwnedTensor allocate(int64_t rows, int64_t cols, DType dtype) override;
  void upload(const void* host, Tensor tensor) override;
  void download(Tensor tensor, void* host) override;
  void copy(Tensor from, Tensor to) override;
  OwnedTensor place_vector(const HostTensor& vector) override;
  OwnedTensor place_table(const HostTensor& table) override;
};

// Ops::advance for a step in host memory.
void advance_host_step(const Step& step);

// A BF16 matrix read where it lies: element (o, i) at data[o * out_stride + i * in_stride]. Null data: there are codes alone.
struct WeightMatrix {
  const bf16* data = nullptr;
  int64_t out = 0;
  int64_t in = 0;
  int64_t out_stride = 0;
  int64_t in_stride = 1;
  CodedMatrix coded = {};  // or nothing
  float tensor_scale = 1;  // with which rows become codes of the tier that was asked for
};

WeightMatrix weight_matrix(const HostTensor& tensor, ExpertLayout layout);

// Stacked matrices (and biases, empty or one value per output) of each group, unconverted.
class HostLinear : public Linear {
 public:
  HostLinear(int64_t in_features, int64_t out_features, std::vector<std::vector<WeightMatrix>> matrices,
             std::vector<float> bias_values);
  const std::vector<std::vector<WeightMatrix>> parts;  // [group][part]
  const std::vector<float> bias;
};

// Row `out` of a group, and the matrix that it is of.
struct WeightRow {
  const WeightMatrix* matrix = nullptr;
  const bf16* data = nullptr;  // element i at data[i * matrix->in_stride]; null as in the matrix
  int64_t index = 0;           // in the matrix
};
WeightRow weight_row(const std::vector<WeightMatrix>& parts, int64_t out);
// Rows [first, first + count) of a group, one after the other, as they are in the checkpoint or as its codes say.
void gather_rows(const std::vector<WeightMatrix>& parts, int64_t first, int64_t count, bf16* rows);
// The same in a tier: codes, code_bytes() a row, and scales as they are in the checkpoint, else made now.
void tier_rows(const std::vector<WeightMatrix>& parts, Tier tier, int64_t first, int64_t count, uint8_t* codes,
               bf16* scales);

std::unique_ptr<HostLinear> make_host_linear(const std::vector<HostTensor>& parts,
                                             const std::vector<HostTensor>& biases, const Role& role = {});
std::unique_ptr<HostLinear> make_host_experts(const std::vector<std::vector<HostTensor>>& experts, ExpertLayout layout,
                                              const Role& role = {});

}  // namespace vireo
