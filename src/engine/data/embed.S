/* The files of this folder as read-only data of the program; the build gives their paths. */
/* SPDX-License-Identifier: Apache-2.0 */
        .section .rodata, "a", %progbits

        .globl vireo_qwen3_merges
        .hidden vireo_qwen3_merges
        .balign 16
vireo_qwen3_merges:
        .incbin VIREO_QWEN3_MERGES
        .globl vireo_qwen3_merges_end
        .hidden vireo_qwen3_merges_end
vireo_qwen3_merges_end:

        .globl vireo_qwen3_vl_instruct
        .hidden vireo_qwen3_vl_instruct
        .balign 16
vireo_qwen3_vl_instruct:
        .incbin VIREO_QWEN3_VL_INSTRUCT
        .globl vireo_qwen3_vl_instruct_end
        .hidden vireo_qwen3_vl_instruct_end
vireo_qwen3_vl_instruct_end:

        .section .note.GNU-stack, "", %progbits
