#!/usr/bin/env python3
"""seeds.py TESTDATA OUT: writes the seeds of every fuzz target to OUT/TARGET, from the tiny checkpoint, the scenes and
the unpacked test data, with variants that damage one thing each.
SPDX-License-Identifier: Apache-2.0"""

import base64
import copy
import hashlib
import json
import pathlib
import struct
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ROOT / "models" / "tiny"
SCENES = ROOT / "tests" / "data" / "scenes"
MAX_PICTURE = 30_000  # bytes; larger ones only slow the targets down
TOO_LARGE = (1 << 17) + 1  # bytes; over the limit that the picture targets set
WRONG_VALUES = [None, True, False, -1, 0, 1, 3, 7, 2**40, 0.5, 1e300, "", "x", [], [1], {}]


class Corpus:
    def __init__(self, out):
        self.out = out

    def add(self, target, data):
        data = data.encode() if isinstance(data, str) else data
        folder = self.out / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


def dump(value):
    return json.dumps(value, ensure_ascii=False)


def paths_of(value, prefix=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in items:
        yield prefix + (key,)
        yield from paths_of(member, prefix + (key,))


def changed(document, path, *replacement):
    """A copy with the value at `path` replaced, or deleted when there is no replacement."""
    result = copy.deepcopy(document)
    parent = result
    for key in path[:-1]:
        parent = parent[key]
    if replacement:
        parent[path[-1]] = replacement[0]
    else:
        del parent[path[-1]]
    return result


def variants(document, skip=()):
    """The document, without one key each, and with one value of another type or size each."""
    yield document
    for path in paths_of(document):
        if path[: len(skip)] == skip and skip:
            continue
        yield changed(document, path)
        for value in WRONG_VALUES:
            yield changed(document, path, value)


# ---- safetensors and checkpoints


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else dump(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(begin, end, shape, dtype="BF16"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def add_safetensors(corpus):
    good = {"__metadata__": {"format": "pt"}, "a": tensor(0, 8, [2, 2]), "b": tensor(8, 12, [1], "F32")}
    data = bytes(range(12))
    for header in variants(good):
        corpus.add("safetensors", safetensors(header, data))
    sizes = [("F64", 8), ("F32", 4), ("F16", 2), ("BF16", 2), ("F8_E4M3", 1), ("I64", 8), ("I8", 1), ("BOOL", 1)]
    corpus.add("safetensors", safetensors({t: tensor(0, 0, [0], t) for t, _ in sizes}))
    for dtype, size in sizes:
        corpus.add("safetensors", safetensors({dtype: tensor(0, size, [], dtype)}, bytes(size)))
    huge = [2**40, 2**40]
    for header, body in [
        ({"a": tensor(0, 8, huge)}, data), ({"a": tensor(0, 8, [2**62])}, data), ({"a": tensor(8, 0, [0])}, data),
        ({"a": tensor(0, 8, [4]), "b": tensor(4, 12, [4])}, data), ({"a": tensor(0, 100, [50])}, data),
        (b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"a":{}}', b"x"),
        (b'{"a":{"dtype":"U8","dtype":"U8"}}', b""), (b'{"a":{"shape":[1,1,1,1,1,1,1,1,1]}}', b""),
        (b'{"a":{"shape":[99999999999999999999]}}', b""), (b'{"a":{"shape":[18446744073709551615]}}', b""),
        (b'{"a":{"shape":[[1]]}}', b""), (b'{"": {}}', b""), (b'{"a":', b""), (b"[]", b""), (b"{}\0", b""), (b"", b""),
        (b'{"a":{"color":1}}', b""), (b"{}   ", b""), (b'{"' + b"n" * 1100 + b'":{}}', b""),
    ]:
        corpus.add("safetensors", safetensors(header, body))
    for raw in [b"", b"short", b"version https://git-lfs.github.com/spec/v1\n", safetensors({}, length=2**63)]:
        corpus.add("safetensors", raw)


def add_checkpoint(corpus):
    mark = b"\n%%\n"
    a = safetensors({"model.norm.weight": tensor(0, 8, [4]), "odd": tensor(8, 9, [1], "U8")}, bytes(9))
    b = safetensors({"visual.x": tensor(0, 4, [2, 1])}, bytes(4))
    again = safetensors({"model.language_model.norm.weight": tensor(0, 8, [4])}, bytes(8))
    odd = safetensors({"a": tensor(0, 1, [1], "U8"), "b": tensor(1, 3, [1])}, bytes(3))
    index = {"weight_map": {"model.norm.weight": "a.safetensors", "odd": "a.safetensors", "visual.x": "b.safetensors"}}
    corpus.add("checkpoint", mark.join([b"", a, b""]))
    corpus.add("checkpoint", mark.join([b"", odd, b""]))
    corpus.add("checkpoint", mark.join([b"", safetensors({"\x1b[2J": tensor(0, 1, [1], "U8")}, b"x"), b""]))
    corpus.add("checkpoint", mark.join([b"", b"", b""]))
    corpus.add("checkpoint", mark.join([dump(index).encode(), a, b""]))
    corpus.add("checkpoint", mark.join([dump(index).encode(), a, again]))
    moved = {"weight_map": {"model.norm.weight": "a.safetensors", "model.language_model.norm.weight": "b.safetensors"}}
    corpus.add("checkpoint", mark.join([dump(moved).encode(), a, again]))
    many = {"weight_map": {f"t{i}": f"{i}.safetensors" for i in range(4100)}}
    corpus.add("checkpoint", dump(many))
    for shard in ["", "/a.safetensors", "../a.safetensors", "a.bin", ".safetensors", "a\0.safetensors", "a\1.safetensors"]:
        corpus.add("checkpoint", mark.join([dump({"weight_map": {"odd": shard}}).encode(), a, b]))
    for document in variants(index):
        corpus.add("checkpoint", mark.join([dump(document).encode(), a, b]))


# ---- JSON and configurations


def add_json(corpus):
    values = [None, True, -5, 5, 2**63, -(2**63), 0.5, 1e300, "x", "\"\\\n\r\t\f\b\x01\u00e9\U0001f600", [1, [2]], {"a": {}}]
    for value in values:
        corpus.add("json", dump({"a": value, "b": [value, value], "": value}))
        corpus.add("json", dump(value))
    for text in ["", "{", "[" * 40, '{"a":1,"a":2}', "\ufeff{}", "[1]x", "[NaN]", "[Infinity]", "[1e999]", "[1\0]",
                 "[123456789012345678901234567890]", b'["\xff"]', "[1.0, 100000000000000000.0, 1e-7, 1e16, 5e-324]"]:
        corpus.add("json", text)


def read_json(path):
    return json.loads(path.read_text())


def add_configs(corpus):
    names = ["config.json", "generation_config.json", "preprocessor_config.json", "video_preprocessor_config.json"]
    tiny = [read_json(TINY / name) for name in names]
    tiny[1].update(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.0, do_sample=True)
    tiny[2].update(do_resize=True, rescale_factor=1 / 255, resample=3, min_pixels=4096, max_pixels=65536)
    moe = copy.deepcopy(tiny[0])
    moe["model_type"] = "qwen3_vl_moe"
    moe["architectures"] = ["Qwen3VLMoeForConditionalGeneration"]
    moe["text_config"].update(num_experts=8, num_local_experts=8, num_experts_per_tok=2, moe_intermediate_size=64,
                              norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
    old = copy.deepcopy(tiny[0])
    old["text_config"]["rope_scaling"] = old["text_config"].pop("rope_parameters")
    old["text_config"]["rope_theta"] = 1e6
    quantized = dict(tiny[0], quantization_config={"quant_method": "awq"})
    own = dict(tiny[0], quantization_config={
        "quant_method": "vireo", "format_version": 1, "group_size": 16, "keep_bf16": True,
        "tiers": {"qkv_proj": "w8", "L5.gate_up": "int4", "lm_head": "bf16"}})

    def join(parts):
        return b"\0".join(dump(part).encode() if part is not None else b"" for part in parts)

    for config in [*variants(tiny[0]), *variants(moe), old, quantized, *variants(own)]:
        corpus.add("configs", join([config, tiny[1]]))
    for i in (1, 2, 3):
        for document in variants(tiny[i]):
            corpus.add("configs", join([tiny[0] if i == 1 else None, *(document if i == j else None for j in (1, 2, 3))]))
    processor = {"image_processor": tiny[2], "video_processor": tiny[3]}
    corpus.add("configs", join([None, None, None, None, processor]))
    for key in processor:
        corpus.add("configs", join([None, None, None, None, dict(processor, **{key: 1})]))


# ---- text


def small_tokenizer():
    tokenizer = read_json(TINY / "tokenizer.json")
    vocab = {token: i for token, i in tokenizer["model"]["vocab"].items() if i < 280}
    merges = [m for m in tokenizer["model"]["merges"] if all(t in vocab for t in (*m, "".join(m)))]
    tokenizer["model"].update(vocab=vocab, merges=merges)
    tokenizer["added_tokens"] = [t for t in tokenizer["added_tokens"] if t["content"] in ("<|im_start|>", "<think>")]
    return tokenizer


def add_tokenizer(corpus):
    good = small_tokenizer()
    tables = {key: good["model"].pop(key) for key in ("vocab", "merges")}

    def with_tables(document, **other):
        model = document.get("model") if isinstance(document, dict) else None
        if isinstance(model, dict):
            model.update(copy.deepcopy(tables), **other)
        return document

    for document in variants(good):
        corpus.add("tokenizer", dump(with_tables(document)))
    vocab, merges = tables["vocab"], tables["merges"]
    first = next(iter(vocab))
    lines = [" ".join(merge) for merge in merges]
    for other in [
        {"merges": lines}, {"merges": []}, {"merges": {}}, {"merges": 5}, {"merges": [5]}, {"merges": ["abc"]},
        {"merges": ["a b c"]}, {"merges": [["a"]]}, {"merges": [["a", "b", "c"]]}, {"merges": [[1, 2]]},
        {"merges": [["a", "no such token"]]}, {"merges": [["", "a"]]}, {"vocab": []}, {"vocab": {}}, {"vocab": None},
        {"vocab": dict(vocab, **{first: 2**20})}, {"vocab": dict(vocab, **{first: -1})}, {"vocab": dict(vocab, x1=0)},
        {"vocab": dict(vocab, **{first: "0"})}, {"vocab": dict(vocab, **{"\u4e2d": 300})}, {"vocab": {"a": [1]}},
        {"vocab": dict(vocab, **{"<|im_start|>": 1025})}, {"vocab": dict(vocab, **{"<|im_start|>": 1024})},
    ]:
        corpus.add("tokenizer", dump(with_tables(copy.deepcopy(good), **other)))
    added = good["added_tokens"]
    for tokens in [[added[0], added[0]], [dict(added[0], content="x" * 600)], [dict(added[0], id=0)], [1],
                   [dict(added[0], lstrip=True)], [added[0], dict(added[1], id=added[0]["id"])]]:
        corpus.add("tokenizer", dump(with_tables(dict(copy.deepcopy(good), added_tokens=tokens))))
    keys = ",".join(f'"k{i}":0' for i in range(300))
    twice = dump({"model": {"vocab": {}}})[:-2] + ',"vocab":{}}}'
    repeated = dump(with_tables(copy.deepcopy(good))).replace('"vocab": {', f'"vocab": {{{dump(first)}: 999, ')
    for text in ["", "[]", "5", "{", "[" * 20, "{" + keys + "}", twice, repeated, '{"a":-1,"b":1.5,"c":[{"d":[null]}]}']:
        corpus.add("tokenizer", text)


def add_text(corpus):
    for text in [
        "", "Hello, world! It's 12:30, we'll SEE\u017fS 's 'RE", "  \n\n \t x  y\r\n", "caf\u00e9 cafe\u0301 \u212b \uac00",
        "\u1112\u1161\u11ab \ud55c \u0958 \ufb1d", "\u4e2d\u6587\u6d4b\u8bd5 \U0001f600\u200d\U0001f680 \U00020000",
        "\u0660\u00b2\u2167 \u00a0\u2003\u3000\u0085x", "a\u0301\u0327\u0323\u0345b", "<|im_start|><think></think><|image_pad|>",
    ]:
        corpus.add("text", text)
    for raw in [b"\xff\xfe", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80",
                b"\xf0\x80\x80\x80", b"\xe0\x9f\xbf", b"a\xe2\x82b\xf0\x9f\x98c", b"\x80\x80", bytes(range(256))]:
        corpus.add("text", raw)


def add_chat(corpus):
    corpus.add("chat", bytes(range(256)))
    for seed in range(64):
        blocks = [hashlib.sha256(bytes([seed, i])).digest() for i in range(16)]
        corpus.add("chat", b"".join(blocks))


def add_chat_file(corpus):
    plain = (TINY / "chat_template.jinja").read_bytes()
    thinking = "last_query_index reasoning_content <think> <|vision_start|>"
    named = [1, {"name": "x"}, {"name": "default", "template": "<tool_response>"}]
    corpus.add("chat_file", plain)
    for text in [thinking, "reasoning_content <think>", "<tool_response>", "hello", "x" * 300]:
        corpus.add("chat_file", text)
    for value in ["plain", named, [], 5, None, {"a": 1}]:
        corpus.add("chat_file", "\0" + dump({"chat_template": value}))
        corpus.add("chat_file", "\0\0" + dump({"chat_template": value}))
    corpus.add("chat_file", "\0{")
    corpus.add("chat_file", "\0[]\0[]")


def add_messages(corpus, pictures):
    uri = "data:image/bmp;base64," + base64.b64encode(pictures["bmp"][0]).decode()
    clip = "data:image/gif;base64," + base64.b64encode(pictures["gif"][0]).decode()
    call = {"type": "function", "function": {"name": "f", "arguments": {"x": [1, 2.5, None]}}}
    parts = [
        {"type": "image", "image": "a.png"}, {"type": "image_url", "image_url": {"url": uri}}, "word",
        {"type": "video", "video": ["1.png", "file:///2.png"], "fps": 2, "do_sample_frames": True},
        {"type": "video", "video": clip, "fps": 1.5}, {"type": "text", "text": "What?"},
    ]
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "x"}]},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "<think>\na\n</think>\n\nb", "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "content": "42"},
        {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
    ]
    document = {"messages": talk, "tools": [call], "max_new_tokens": 8}
    for other in [document, talk, {"messages": talk[2:3]}, [{"role": "user", "content": "Hi"}]]:
        corpus.add("messages", dump(other))
    for part in [parts[3], {"video": "data:;base64," + base64.b64encode(gif(8, 6, [gif_frame(0, 0, 8, 6)] * 5)).decode()}]:
        corpus.add("messages", dump([{"role": "user", "content": [part, part, "What?"]}]))
    corpus.add("messages", dump([{"role": "user", "content": [parts[0]] * 4 + ["What?"]}]))
    short = copy.deepcopy(document)
    for index in (1, 4):
        short["messages"][2]["content"][index] = {"type": "image", "image": {"url": "data:;base64,Qk0="}}
    for variant in variants(short):
        corpus.add("messages", dump(variant))
    for image in ["data:x", "data:;base64,!", "data:;base64,QQ==", "data:;base64,A", "data:;base64,QQ==Q", "http://x/y",
                  "https://x", "", {"url": {"url": "x"}}, {}, "data:;base64,QQ===", "data:;base64, Q-_/\n+Q"]:
        corpus.add("messages", dump([{"role": "user", "content": [{"image": image}, "q"]}]))
    corpus.add("messages", dump([{"role": "user", "content": "long " * 3000}]))
    corpus.add("messages", dump([{"role": "\x1b[2J", "content": ""}]))


# ---- pictures


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(width, height, depth, kind, extra=b"", interlace=0):
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
    row = b"\0" + bytes(i * 37 % 251 for i in range((width * channels * depth + 7) // 8))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlace))
    data = chunk(b"IDAT", zlib.compress(row * height))
    return b"\x89PNG\r\n\x1a\n" + header + extra + data + chunk(b"IEND", b"")


def tiff(orientation, big=True, kind=3):
    order = ">" if big else "<"
    value = struct.pack(order + {1: "B3x", 3: "HH", 4: "I", 9: "I"}[kind], *([orientation] + [0] * (kind == 3)))
    entry = struct.pack(order + "HHI", 0x112, kind, 1) + value
    other = struct.pack(order + "HHII", 0x100, 4, 1, 7)
    return (b"MM\0*" if big else b"II*\0") + struct.pack(order + "IH", 8, 2) + other + entry + bytes(4)


def made_pngs():
    for depth in (1, 2, 4, 8, 16):
        yield png(9, 5, depth, 0)
        yield png(9, 5, depth, 0, chunk(b"tRNS", b"\0\1"))
        if depth <= 8:
            yield png(9, 5, depth, 3, chunk(b"PLTE", bytes(3 * 2**depth)))
    for kind in (2, 4, 6):
        yield png(9, 5, 8, kind)
        yield png(9, 5, 16, kind)
    for orientation in range(10):
        yield png(6, 3, 8, 2, chunk(b"eXIf", tiff(orientation, orientation % 2 == 0, (1, 3, 4, 9)[orientation % 4])))
    yield png(9, 5, 8, 0).replace(struct.pack(">II", 9, 5), struct.pack(">II", 2**31 - 1, 2**31 - 1))
    yield png(0, 1, 8, 0)
    yield png(1000, 1000, 1, 0)
    yield png(8, 8, 8, 6)[:60]
    yield b"\x89PNG\r\n\x1a\n"


def bmp(width, height, bits, header=40, compression=0, masks=(), colors=0):
    palette = b"".join(bytes([i * 7 % 256, i * 5 % 256, i % 256] + [0] * (header != 12)) for i in range(colors))
    mask_bytes = b"".join(struct.pack("<I", mask) for mask in masks)
    if header == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        info = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, compression, 0, 0, 0, colors, 0)
        info += mask_bytes if header > 40 else b""
        info = info.ljust(header, b"\0") + (mask_bytes if header == 40 else b"")
    stride = (width * bits + 31) // 32 * 4
    data = bytes(i * 31 % 256 for i in range(min(stride * abs(height), 4000)))
    offset = 14 + len(info) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(data), 0, 0, offset) + info + palette + data


def made_bmps():
    rgb565, rgba = (0xF800, 0x7E0, 0x1F), (0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    for bits in (1, 4, 8, 16, 24, 32):
        yield bmp(5, 4, bits, colors=2**bits if bits <= 8 else 0)
        yield bmp(5, -4, bits, colors=2 if bits <= 8 else 0)
        yield bmp(5, 4, bits, header=12, colors=2**bits if bits <= 8 else 0)
    yield bmp(5, 4, 16, compression=3, masks=rgb565)
    yield bmp(5, 4, 32, compression=3, masks=rgba[:3])
    yield bmp(5, 4, 32, compression=6, masks=rgba)
    yield bmp(5, 4, 24, compression=3, masks=rgba)
    for header in (16, 52, 56, 64, 108, 124):
        yield bmp(5, 4, 32, header=max(header, 40), compression=3, masks=rgba)
    yield bmp(5, 4, 32, compression=3, masks=(0, 0x80000000, 1, 5))
    for compression in (1, 2, 4, 5):
        yield bmp(5, 4, 8, compression=compression, colors=4)
    for size in ((0, 4), (5, 0), (-1, 1), (2**31 - 1, 2**31 - 1), (1, -(2**31)), (5, 400)):
        yield bmp(*size, 24) if size[0] >= 0 and size[0] < 9 else bmp(5, 4, 24).replace(
            struct.pack("<ii", 5, 4), struct.pack("<ii", *size))
    yield bmp(5, 4, 7)
    yield bmp(5, 4, 8, colors=256)[:100]
    yield bmp(5, 4, 24)[:60]
    yield bmp(5, 4, 24).replace(struct.pack("<I", 40), struct.pack("<I", 16), 1)
    yield bmp(5, 4, 24)[:20]


def lzw(indices):
    """Codes without compression: a clear code before the table can grow past eight bits."""
    bits, count = 0, 0
    for i, index in enumerate(indices):
        codes = ([256] if i % 200 == 0 else []) + [index]
        for code in codes:
            bits |= code << count
            count += 9
    bits |= 257 << count
    data = bits.to_bytes((count + 9 + 7) // 8, "little")
    blocks = [data[i : i + 255] for i in range(0, len(data), 255)]
    return b"\x08" + b"".join(bytes([len(block)]) + block for block in blocks) + b"\0"


def gif_frame(left, top, width, height, disposal=0, delay=5, clear=None, local=False, interlace=False):
    flags = disposal << 2 | (clear is not None)
    control = b"\x21\xf9\x04" + struct.pack("<BHB", flags, delay, clear or 0) + b"\0"
    packed = (0x81 if local else 0) | (0x40 if interlace else 0)
    descriptor = b"," + struct.pack("<HHHHB", left, top, width, height, packed)
    colors = bytes(range(12)) if local else b""
    return control + descriptor + colors + lzw([i % 5 for i in range(width * height)])


def gif(width, height, frames, palette=True, end=b";"):
    screen = struct.pack("<HHBBB", width, height, 0x81 if palette else 0, 0, 0)
    return b"GIF89a" + screen + (bytes(range(100, 112)) if palette else b"") + b"".join(frames) + end


def made_gifs():
    comment = b"\x21\xfe\x03abc\0"
    loop = b"\x21\xff\x0bNETSCAPE2.0\x03\x01\0\0\0"
    yield gif(8, 6, [loop, *(gif_frame(i, i, 4, 3, disposal=i, delay=i, clear=i) for i in range(4)), comment])
    yield gif(4, 4, [gif_frame(0, 0, 9, 9, interlace=True, local=True), gif_frame(7, 7, 9, 9, local=True)])
    yield gif(8, 6, [gif_frame(0, 0, 8, 6)], palette=False)
    yield gif(8, 6, [comment])
    yield gif(8, 6, [gif_frame(0, 0, 8, 6)], end=b"")
    yield gif(8, 6, [gif_frame(0, 0, 8, 6)] * 70)
    yield gif(200, 200, [gif_frame(0, 0, 2, 2)] * 9)
    yield gif(60000, 60000, [gif_frame(0, 0, 2, 2)])
    yield gif(8, 6, [gif_frame(0, 0, 0, 6)])
    yield gif(8, 6, [gif_frame(65535, 65535, 2, 2)])
    yield gif(8, 6, [b"\x21\xf9\x04"], end=b"")
    yield gif(8, 6, [gif_frame(0, 0, 8, 6)])[:60]
    yield b"GIF89a"
    yield gif(8, 6, [b"x"])


def riff(chunks):
    body = b"WEBP" + b"".join(name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for name, data in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def three(value):
    return struct.pack("<I", value)[:3]


def made_webps(still):
    """`still` is a plain file: RIFF, size, WEBP and one chunk."""
    name, data = still[12:16], still[20 : 20 + struct.unpack("<I", still[16:20])[0]]
    width, height = 130, 110
    size = three(width - 1) + three(height - 1)

    def extended(flags, *chunks):
        return riff([(b"VP8X", bytes([flags, 0, 0, 0]) + size), *chunks])

    frame = three(0) * 2 + size + three(40) + b"\0" + name + struct.pack("<I", len(data)) + data
    yield extended(0, (name, data))
    yield extended(2, (b"ANIM", bytes(6)), (b"ANMF", frame), (b"ANMF", frame))
    yield extended(2, (b"ANIM", bytes(6)), (b"ANMF", frame[:40]))
    yield extended(2, (b"ANIM", bytes(6)))
    for orientation in (6, 3):
        yield extended(8, (name, data), (b"EXIF", b"Exif\0\0" + tiff(orientation)))
        yield extended(8, (name, data), (b"EXIF", tiff(orientation, big=False)))
    if name == b"VP8L":
        yield riff([(name, data[:4] + bytes([data[4] | 0x10]) + data[5:])])
    yield still[:24]
    yield still[: len(still) // 2]
    yield b"RIFF\0\0\0\0WEBP"


def made_jpegs(stored):
    base = next(data for data in stored if data[2:4] == b"\xff\xe0")
    for orientation in range(10):
        body = b"Exif\0\0" + tiff(orientation, orientation % 2 == 0, (1, 3, 4, 9)[orientation % 4])
        yield base[:2] + b"\xff\xff\xe1" + struct.pack(">H", len(body) + 2) + body + base[2:]
    yield base[:2] + b"\xff\xe1\0\1" + base[2:]
    yield base[: len(base) // 2]
    yield base[:200]
    scan = base.index(b"\xff\xda")
    yield base[: scan + 30] + b"\xff\xd9"
    yield base[:scan] + base[scan:-2] * 70
    start = base.find(b"\xff\xc0")
    yield base[: start + 5] + b"\xff\xff\xff\xff" + base[start + 9 :]


OTHER_FORMATS = [
    b"", b"hello", b"<svg>", b"<html>", b"\0\0\0\x18ftypavif", b"\0\0\0\x18ftypheic", b"\0\0\0\x18ftypisom", b"\x01\x02\x03",
    b"\x1a\x45\xdf\xa3", b"II*\0", b"MM\0*", b"\xff\x0a", b"8BPS", b"%PDF", b"PK\3\4", b"version https://git-lfs", b"BM" + bytes(20),
]


def pictures_of(testdata):
    """Bytes of valid pictures by target, the smallest first."""
    files = [*SCENES.iterdir(), *(testdata / "goldens" / "preprocess").iterdir()]
    suffixes = {".png": "png", ".jpg": "jpeg", ".webp": "webp", ".gif": "gif", ".bmp": "bmp"}
    found = {target: [] for target in suffixes.values()}
    for path in sorted(files, key=lambda path: (path.stat().st_size, path.name)):
        if path.suffix in suffixes and path.stat().st_size <= MAX_PICTURE:
            found[suffixes[path.suffix]].append(path.read_bytes())
    stills = [data for data in found["webp"] if data[12:16] in (b"VP8 ", b"VP8L")]
    lossless = next((data for data in stills if data[12:16] == b"VP8L"), stills[0])
    found["png"] = found["png"][:12] + list(made_pngs())
    found["bmp"] += list(made_bmps())
    found["gif"] += list(made_gifs())
    found["webp"] = found["webp"][:12] + [made for still in (stills[0], lossless) for made in made_webps(still)]
    found["jpeg"] = found["jpeg"][:20] + list(made_jpegs(found["jpeg"]))
    return found


def add_pictures(corpus, pictures):
    for target, files in pictures.items():
        for data in files:
            corpus.add(target, data)
        for data in files[:4]:
            corpus.add("picture", data)
    for data in OTHER_FORMATS:
        corpus.add("picture", data)
    for data in (b"", bytes(TOO_LARGE)):
        corpus.add("picture", data)


def main(testdata, out):
    corpus = Corpus(pathlib.Path(out))
    pictures = pictures_of(pathlib.Path(testdata))
    for add in (add_safetensors, add_checkpoint, add_json, add_configs, add_tokenizer, add_text, add_chat, add_chat_file):
        add(corpus)
    add_messages(corpus, pictures)
    add_pictures(corpus, pictures)


if __name__ == "__main__":
    main(*sys.argv[1:])
