"""convert.py CHECKPOINT TEXT.gguf MMPROJ.gguf

Writes a dense Qwen3-VL checkpoint in safetensors as the two files that llama.cpp reads, with the same weights, so that
both programs compute the same thing. Types are those of llama.cpp's own converter for BF16: matrices stay BF16; norms,
biases, the patch convolution and the position embeddings become F32. Run by tools/compare in its virtual environment.
"""
# SPDX-License-Identifier: Apache-2.0

import json
import os
import pathlib
import re
import sys

import gguf
import numpy

BF16 = gguf.GGMLQuantizationType.BF16
TEXT = "model.language_model."
VISION = "model.visual."
HEAD = "lm_head.weight"  # only where it is not the embedding

TEXT_NAMES = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
BLOCK_NAMES = {
    "norm1": "ln1",
    "norm2": "ln2",
    "attn.qkv": "attn_qkv",
    "attn.proj": "attn_out",
    "mlp.linear_fc1": "ffn_up",
    "mlp.linear_fc2": "ffn_down",
}
MERGER_NAMES = {"norm": "v.post_ln", "linear_fc1": "mm.0", "linear_fc2": "mm.2"}
DEEPSTACK_NAMES = {"norm": "norm", "linear_fc1": "fc1", "linear_fc2": "fc2"}
VISION_NAMES = {"patch_embed.proj": "v.patch_embd", "pos_embed": "v.position_embd"}
ALWAYS_F32 = ("v.patch_embd", "v.position_embd")


def tensors_of(folder):
    """(name, bits as uint16) of every tensor; the bits stay in the mapped file."""
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        data = numpy.memmap(path, dtype=numpy.uint8, mode="r", offset=8 + size)
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if entry["dtype"] != "BF16":
                raise SystemExit(f"{path.name}: {name} is {entry['dtype']}, and only BF16 checkpoints are compared")
            begin, end = entry["data_offsets"]
            yield name, data[begin:end].view(numpy.uint16).reshape(entry["shape"])


def to_float(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def text_name(name):
    """What llama.cpp calls a tensor of the language model."""
    if name == HEAD:
        return "output.weight"
    stem, kind = name.removeprefix(TEXT).rsplit(".", 1)
    layer = re.fullmatch(r"layers\.(\d+)\.(.+)", stem)
    block = f"blk.{layer[1]}." if layer else ""
    return f"{block}{TEXT_NAMES[layer[2] if layer else stem]}.{kind}"


def vision_name(name, deepstack):
    """What llama.cpp calls a tensor of the vision tower; deepstack mergers go by the block that they follow."""
    stem, kind = name.removeprefix(VISION).rsplit(".", 1)
    if block := re.fullmatch(r"blocks\.(\d+)\.(.+)", stem):
        return f"v.blk.{block[1]}.{BLOCK_NAMES[block[2]]}.{kind}"
    if merger := re.fullmatch(r"deepstack_merger_list\.(\d+)\.(.+)", stem):
        return f"v.deepstack.{deepstack[int(merger[1])]}.{DEEPSTACK_NAMES[merger[2]]}.{kind}"
    if stem.startswith("merger."):
        return f"{MERGER_NAMES[stem.removeprefix('merger.')]}.{kind}"
    return f"{VISION_NAMES[stem]}.{kind}"


def add(writer, name, bits):
    if bits.ndim == 1 or name.startswith(ALWAYS_F32):
        writer.add_tensor(name, to_float(bits))
    else:
        rows = numpy.ascontiguousarray(bits).view(numpy.uint8)
        writer.add_tensor(name, rows, raw_dtype=BF16)


def add_vision(writer, name, bits, deepstack):
    name = vision_name(name, deepstack)
    if name == "v.patch_embd.weight":  # one convolution for each of the two frames
        add(writer, name, bits[:, :, 0])
        add(writer, name + ".1", bits[:, :, 1])
    else:
        add(writer, name, bits)


def vocabulary(folder, size):
    """Tokens, their types and the merges; ids that the tokenizer leaves free are unused tokens."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = [f"[PAD{i}]" for i in range(size)]
    types = [gguf.TokenType.UNUSED] * size
    for token, i in tokenizer["model"]["vocab"].items():
        tokens[i], types[i] = token, gguf.TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        kind = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        tokens[added["id"]], types[added["id"]] = added["content"], kind
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    return tokens, types, merges


def text_header(writer, folder, config):
    text = config["text_config"]
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_block_count(text["num_hidden_layers"])
    writer.add_context_length(text["max_position_embeddings"])
    writer.add_embedding_length(text["hidden_size"])
    writer.add_feed_forward_length(text["intermediate_size"])
    writer.add_head_count(text["num_attention_heads"])
    writer.add_head_count_kv(text["num_key_value_heads"])
    writer.add_key_length(text["head_dim"])
    writer.add_value_length(text["head_dim"])
    writer.add_rope_freq_base(text["rope_theta"])
    writer.add_rope_dimension_sections([*text["rope_scaling"]["mrope_section"], 0])
    writer.add_layer_norm_rms_eps(text["rms_norm_eps"])
    writer.add_num_deepstack_layers(len(config["vision_config"]["deepstack_visual_indexes"]))
    tokens, types, merges = vocabulary(folder, text["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(text["eos_token_id"])
    writer.add_pad_token_id(text["bos_token_id"])
    writer.add_add_bos_token(False)


def vision_header(writer, config, pixels):
    vision = config["vision_config"]
    patch = vision["patch_size"]
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(gguf.VisionProjectorType.QWEN3VL)
    writer.add_vision_projection_dim(vision["out_hidden_size"])
    writer.add_vision_image_size(round(vision["num_position_embeddings"] ** 0.5) * patch)
    writer.add_vision_patch_size(patch)
    writer.add_vision_embedding_length(vision["hidden_size"])
    writer.add_vision_feed_forward_length(vision["intermediate_size"])
    writer.add_vision_block_count(vision["depth"])
    writer.add_vision_head_count(vision["num_heads"])
    writer.add_vision_image_mean(pixels["image_mean"])
    writer.add_vision_image_std(pixels["image_std"])
    writer.add_vision_use_gelu(True)
    writer.add_vision_spatial_merge_size(vision["spatial_merge_size"])
    writer.add_vision_attention_layernorm_eps(config["text_config"]["rms_norm_eps"])
    deepstack = vision["deepstack_visual_indexes"]
    writer.add_vision_is_deepstack_layers([i in deepstack for i in range(vision["depth"])])


def write(writer, target):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(str(target) + ".partial", target)


def main():
    folder, text_file, vision_file = map(pathlib.Path, sys.argv[1:])
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") != "qwen3_vl":
        raise SystemExit(f"{folder} is of type {config.get('model_type')}: only dense Qwen3-VL models are compared")
    deepstack = config["vision_config"]["deepstack_visual_indexes"]
    if len(deepstack) >= config["text_config"]["num_hidden_layers"]:
        raise SystemExit(f"llama.cpp needs more layers than the {len(deepstack)} that DeepStack adds pictures to")
    text = gguf.GGUFWriter(str(text_file) + ".partial", "qwen3vl")
    text_header(text, folder, config)
    vision = gguf.GGUFWriter(str(vision_file) + ".partial", "clip")
    vision_header(vision, config, json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8")))
    for name, bits in tensors_of(folder):
        if name.startswith(VISION):
            add_vision(vision, name, bits, deepstack)
        else:
            add(text, text_name(name), bits)
    write(text, text_file)
    write(vision, vision_file)


if __name__ == "__main__":
    main()
