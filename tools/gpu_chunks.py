#!/usr/bin/env python3
"""tools/gpu_chunks.py --checkpoint DIR --logits PROGRAM [--device NAME] [--json FILE]

A prompt with a picture of 2172x724 in chunks of 64, 256 and 1024 rows against the same prompt as a whole (PROGRAM is bench/logits.cc,
built with -DVIREO_BENCH=ON): its last row and 8 decode steps. Fails where a row's cosine is not above 0.9999, or where another token is best
although the whole prompt's two best are no near tie. Needs numpy and Pillow.
"""
# SPDX-License-Identifier: Apache-2.0

import argparse
import json
import os
import sys
import tempfile

import numpy
from PIL import Image
from vireo_rows import vireo_rows

CHUNKS = (64, 256, 1024)
WHOLE = 2048  # more than the prompt has
STEPS = 8
LEAST = 0.9999


def near_tie(row):
    """The two best are less than four steps of bfloat16 apart, as tests/parity/golden_cases.cc has it."""
    second, best = numpy.sort(row)[-2:]
    return bool(best - second < 4 * 2.0 ** (numpy.floor(numpy.log2(abs(best))) - 7))


def compare(whole, ids, rows):
    """Of the rows up to the first that has another token, which is the last with the same tokens before it."""
    least = 1.0
    for step, (a, b) in enumerate(zip(whole[1], rows)):
        least = min(least, float(a @ b / numpy.sqrt((a @ a) * (b @ b))))
        if whole[0][step] != ids[step]:
            return least, step, near_tie(a)
    return least, None, True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--logits", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json")
    args = parser.parse_args()
    report, good = {}, True
    with tempfile.TemporaryDirectory() as folder:
        noise = numpy.random.default_rng(1).integers(0, 255, (91, 272, 3), dtype=numpy.uint8)
        picture = os.path.join(folder, "picture.png")
        Image.fromarray(noise).resize((2172, 724)).save(picture)

        def rows_in_chunks(chunk):
            ids, rows = vireo_rows(args.logits, args.checkpoint, picture, STEPS, args.device, chunk)
            return ids, rows.astype(numpy.float64)

        whole = rows_in_chunks(WHOLE)
        for chunk in CHUNKS:
            least, other, tie = compare(whole, *rows_in_chunks(chunk))
            report[str(chunk)] = {"cosine_least": least, "first_other_token": other, "at_a_near_tie": tie}
            good = good and tie and least > LEAST
    text = json.dumps(report)
    print(text)
    if args.json:
        open(args.json, "w", encoding="utf-8").write(text + "\n")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
