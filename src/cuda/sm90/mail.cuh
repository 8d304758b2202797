// How blocks of one launch hand values to each other without a fence. A slot of 4 bytes is empty until it is written, once in a launch, and
// is read again until it is not. A word of 8 bytes carries its value and a tag, the launch and the link that wrote it, and
// is read again until the tag is right: twice the bytes, but it need not be emptied.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/device.cuh"

namespace vireo::cuda {

using Slot = uint32_t;  // a float or two bf16
inline constexpr Slot kEmpty = 0xffffffffu, kNoNumber = 0x7fffffffu;  // both NaN, as a float and as two bf16

// What an instruction computes is never kEmpty; should it be after all, nobody waits for ever.
__device__ __forceinline__ void send_slot(Slot* to, Slot value) {
  if (value == kEmpty) value = kNoNumber;
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ Slot read_slot(const Slot* from) {
  Slot v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
}

// Sources of slots, by twos and by fours. Behind the end are zeros. (If all read the last slot instead, they would wait for each other.)
struct SlotPairs {
  const Slot* slots;
  int count;  // pairs
  using Raw = uint2;
  __device__ __forceinline__ Raw begin(int i) const {
    Raw raw = {0, 0};
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0; @p ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2]; }"
                 : "+r"(raw.x), "+r"(raw.y)
                 : "l"(slots + 2 * i), "r"(static_cast<int>(i < count)));
    return raw;
  }
  __device__ __forceinline__ bool is_there(Raw raw) const { return raw.x != kEmpty && raw.y != kEmpty; }
  __device__ __forceinline__ float2 value(Raw raw, int) const {
    return {__uint_as_float(raw.x), __uint_as_float(raw.y)};
  }
};
struct SlotQuads {
  const Slot* slots;
  int count;  // quads
  using Raw = uint4;
  __device__ __forceinline__ Raw begin(int i) const {
    Raw raw = {0, 0, 0, 0};
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %5, 0; @p ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "+r"(raw.x), "+r"(raw.y), "+r"(raw.z), "+r"(raw.w)
        : "l"(slots + 4 * i), "r"(static_cast<int>(i < count)));
    return raw;
  }
  __device__ __forceinline__ bool is_there(const Raw& raw) const {
    return raw.x != kEmpty && raw.y != kEmpty && raw.z != kEmpty && raw.w != kEmpty;
  }
};
// Elements of a head of bf16.
struct SlotHead {
  const Slot* slots;
  using Raw = Slot;
  __device__ __forceinline__ Raw begin(int j) const { return read_slot(slots + j / 2); }
  __device__ __forceinline__ bool is_there(Raw raw) const { return raw != kEmpty; }
  __device__ __forceinline__ float value(Raw raw, int j) const { return j % 2 == 0 ? low_bf16(raw) : high_bf16(raw); }
};

using Word = uint64_t;  // a float below, the tag above

__device__ __forceinline__ void send_word(Word* to, uint32_t value, uint32_t tag) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(Word{tag} << 32 | value) : "memory");
}
__device__ __forceinline__ void send_word(Word* to, float value, uint32_t tag) {
  send_word(to, __float_as_uint(value), tag);
}

__device__ __forceinline__ Word read_word(const Word* from) {
  Word w;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(w) : "l"(from));
  return w;
}
// `instead` where there is none.
__device__ __forceinline__ Word read_word(const Word* from, bool exists, Word instead) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.relaxed.gpu.global.u64 %0, [%1]; }"
               : "+l"(instead)
               : "l"(from), "r"(static_cast<int>(exists)));
  return instead;
}
__device__ __forceinline__ float float_of(Word w) {
  return __uint_as_float(static_cast<uint32_t>(w));
}

}  // namespace vireo::cuda
