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
import subprocess
import sys
import tempfile

import numpy
from PIL import Image

CHUNKS = (64, 256, 1024)
WHOLE = 2048  # more than the prompt has
STEPS = 8
LEAST = 0.9999
PROMPT = "Describe this image in one sentence."


def rows_in_chunks(args, folder, chunk):
    out = os.path.join(folder, f"rows-{chunk}")
    picture = os.path.join(folder, "picture.png")
    command = [args.logits, args.checkpoint, picture, PROMPT, str(STEPS), out, args.device, str(chunk)]
    ids = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return ids, numpy.fromfile(out, dtype=numpy.float32).reshape(STEPS + 1, -1).astype(numpy.float64)


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
        Image.fromarray(noise).resize((2172, 724)).save(os.path.join(folder, "picture.png"))
        whole = rows_in_chunks(args, folder, WHOLE)
        for chunk in CHUNKS:
            least, other, tie = compare(whole, *rows_in_chunks(args, folder, chunk))
            report[str(chunk)] = {"cosine_least": least, "first_other_token": other, "at_a_near_tie": tie}
            good = good and tie and least > LEAST
    text = json.dumps(report)
    print(text)
    if args.json:
        open(args.json, "w", encoding="utf-8").write(text + "\n")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
