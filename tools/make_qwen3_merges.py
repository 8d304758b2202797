#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/engine/data/qwen3_merges.bin from the official Qwen3 tokenizer of the test data.

The merges determine the vocabulary: the 256 byte symbols in the order of their code points come first, then the result
of every merge in order of rank. The script checks that this holds. The file: the number of merges and the length of the
unpacked text below (two little-endian 32-bit numbers), then a zlib stream of the left ids of all merges followed by
their right ids, each id in base 128, low digits first, the high bit set on all but the last byte.
"""
import json
import pathlib
import struct
import tarfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
ARCHIVE = ROOT / "tests/data/qwen3-tokenizer.tar.xz"
OUTPUT = ROOT / "src/engine/data/qwen3_merges.bin"


def read_model():
    with tarfile.open(ARCHIVE) as archive:
        member = next(m for m in archive.getmembers() if m.name.endswith("/tokenizer.json"))
        return json.load(archive.extractfile(member))["model"]


def byte_symbols():
    """The GPT-2 table: printable Latin-1 stands for itself, the other bytes follow from U+0100."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(c) for c in own] + [chr(256 + i) for i in range(256 - len(own))]


def base128(number):
    digits = []
    while number >= 128:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


def main():
    model = read_model()
    ids = model["vocab"]
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    tokens = byte_symbols() + [left + right for left, right in pairs]
    if ids != {token: i for i, token in enumerate(tokens)}:
        raise SystemExit("the vocabulary is not the byte symbols followed by the results of the merges")
    text = b"".join(base128(ids[pair[side]]) for side in (0, 1) for pair in pairs)
    OUTPUT.write_bytes(struct.pack("<II", len(pairs), len(text)) + zlib.compress(text, 9))
    print(f"{OUTPUT.relative_to(ROOT)}: {len(pairs)} merges in {OUTPUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
