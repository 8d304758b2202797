// One safetensors file.
// Covers: src/files/safetensors.cc
// SPDX-License-Identifier: Apache-2.0
#include "files/safetensors.h"

#include "tensor_checks.h"

using namespace vireo;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile memory(fuzz::as_text(data, size));
  fuzz::accepts([&] {
    const SafetensorsFile file = SafetensorsFile::open(memory.path());
    fuzz::check_tensors(file.tensors(), size);
  });
  return 0;
}
