"""quantize.py CHECKPOINT BF16.gguf TARGET.gguf TYPE

Has llama.cpp quantise the language model of a checkpoint, copied by convert.py, to one type (Q8_0, Q4_0): every matrix
but an embedding that is not the head, too. Run by tools/compare in its virtual environment.
"""
# SPDX-License-Identifier: Apache-2.0

import os
import pathlib
import sys

import gguf
import llama_cpp

import convert


def has_head(folder):
    return any(name == convert.HEAD for name, _ in convert.tensors_of(folder))


def quantize(source, target, kind, keep_embedding):
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = gguf.LlamaFileType[f"MOSTLY_{kind}"]
    params.pure = True  # llama.cpp would give some matrices a larger type
    if keep_embedding:
        params.token_embedding_type = gguf.GGMLQuantizationType.BF16
    llama_cpp.llama_backend_init()
    if llama_cpp.llama_model_quantize(source.encode(), target.encode(), params) != 0:
        raise SystemExit(f"llama.cpp could not quantise {source}")


def check(path, kind, keep_embedding):
    """Matrices whose rows do not fit the blocks of a type silently get another one."""
    for tensor in gguf.GGUFReader(path).tensors:
        wanted = "BF16" if keep_embedding and tensor.name == "token_embd.weight" else kind
        if len(tensor.shape) == 2 and tensor.tensor_type.name != wanted:
            raise SystemExit(f"llama.cpp made {tensor.name} {tensor.tensor_type.name}, not {wanted}")


def main():
    folder, source, target, kind = sys.argv[1:]
    partial = target + ".partial"
    keep_embedding = has_head(pathlib.Path(folder))
    quantize(source, partial, kind, keep_embedding)
    check(partial, kind, keep_embedding)
    os.replace(partial, target)


if __name__ == "__main__":
    main()
