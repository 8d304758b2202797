// Which factors a projection's inputs get: those with which its tier loses least of the product, found channel by channel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/tensor.h"
#include "model/folding.h"

namespace vireo {

struct FoldTask {
  Tier tier = Tier::kW4;
  std::vector<HostTensor> parts;      // BF16 [out, in] each
  HostTensor maker_weights;           // BF16, as the maker says
  Maker maker;                        // of the projection
  std::vector<double> input_squares;  // mean of the squares of each input, [in]
};

struct FoundFold {
  std::vector<int8_t> exponents;  // of the maker's factors
  double alpha = 0;               // the search began at (magnitude of an input / their geometric mean)^alpha
  // Of the product: the squares of its error over its own squares, inputs being as large as the task says and independent.
  double plain_error = 0, error = 0;  // without factors and with the usual scales, and with these and fitted ones
};

// Never worse than plain, on the rows that it looks at (512 at most, spread over all). A factor that would not be exact stays 1.
FoundFold find_fold(const FoldTask& task);

}  // namespace vireo
