// How blocks of one launch hand values to each other without a fence: each 8-byte word carries its value and a tag, the launch and the
// link that wrote it, and is read again until the tag is right.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/device.cuh"

namespace vireo::cuda {

using Word = uint64_t;  // a float or two bf16 below, the tag above

__device__ __forceinline__ void send_word(Word* to, uint32_t value, uint32_t tag) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(Word{tag} << 32 | value) : "memory");
}
__device__ __forceinline__ void send_word(Word* to, float value, uint32_t tag) {
  send_word(to, __float_as_uint(value), tag);
}

// kWords in a row, each by itself.
template <int kWords>
struct Letter {
  Word words[kWords];
};
__device__ __forceinline__ Letter<1> read_letter(const Letter<1>* from) {
  Letter<1> l;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(l.words[0]) : "l"(from));
  return l;
}
// `from` is a multiple of 16.
__device__ __forceinline__ Letter<2> read_letter(const Letter<2>* from) {
  Letter<2> l;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(l.words[0]), "=l"(l.words[1]) : "l"(from));
  return l;
}
template <int kWords>
__device__ __forceinline__ Letter<kWords> begin_letter(const Word* from) {
  return read_letter(reinterpret_cast<const Letter<kWords>*>(from));
}
template <int kWords>
__device__ __forceinline__ bool has_tag(const Letter<kWords>& l, uint32_t tag) {
  bool all = true;
#pragma unroll
  for (int i = 0; i < kWords; ++i) all &= static_cast<uint32_t>(l.words[i] >> 32) == tag;
  return all;
}
template <int kWords>
__device__ __forceinline__ uint32_t bits_of(const Letter<kWords>& l, int i) {
  return static_cast<uint32_t>(l.words[i]);
}
template <int kWords>
__device__ __forceinline__ float float_of(const Letter<kWords>& l, int i) {
  return __uint_as_float(bits_of(l, i));
}

// Letters in a row, a source as fetch() reads it.
template <int kWords>
struct Letters {
  const Word* words;
  uint32_t tag;
  using Raw = Letter<kWords>;
  __device__ __forceinline__ Raw begin(int i) const { return begin_letter<kWords>(words + kWords * i); }
  __device__ __forceinline__ bool is_there(const Raw& raw) const { return has_tag(raw, tag); }
};

}  // namespace vireo::cuda
