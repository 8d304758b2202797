// A checkpoint folder: the index and two shards, divided by lines of "%%". Without an index the first shard is the
// whole model.
// Covers: src/files/checkpoint.cc
// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint.h"

#include "tensor_checks.h"

using namespace vireo;

namespace {

void ask(const Checkpoint& checkpoint) {
  for (const HostTensor& tensor : checkpoint.tensors()) {
    const HostTensor* found = checkpoint.find(tensor.name);
    fuzz::require(found == &tensor, "a tensor is found by its name");
    fuzz::require(!checkpoint.file_of(*found).empty(), "a tensor has a file");
    fuzz::accepts([&] { checkpoint.get(tensor.name, tensor.shape); });
    fuzz::require(!fuzz::accepts([&] { checkpoint.get(tensor.name, {-1}); }), "a wrong shape is refused");
  }
  fuzz::require(!fuzz::accepts([&] { checkpoint.get("nowhere", {1}); }), "an absent tensor is refused");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  const auto parts = fuzz::split(fuzz::as_text(data, size), "\n%%\n", 3);
  folder.put("model.safetensors.index.json", parts[0]);
  folder.put(parts[0].empty() ? "model.safetensors" : "a.safetensors", parts[1]);
  folder.put("b.safetensors", parts[2]);
  fuzz::accepts([&] {
    const Checkpoint checkpoint = Checkpoint::open(folder.path());
    fuzz::check_tensors(checkpoint.tensors(), size);
    fuzz::require(checkpoint.tensor_bytes() <= size, "tensor_bytes is a sum over the files");
    ask(checkpoint);
  });
  for (const char* name : {"model.safetensors", "a.safetensors"}) folder.put(name, {});
  return 0;
}
