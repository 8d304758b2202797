// For functions whose loops compilers turn into vector code: compiled once more for processors with wider vectors. Which of them runs is found
// when the program is loaded. Multiplications and additions are not fused, so that the results are the same.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define VIREO_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define VIREO_VECTOR_CLONES
#endif
