#!/usr/bin/env python3
"""tools/gpu_transformers.py --checkpoint DIR --logits PROGRAM [--picture FILE] [--steps N] [--json FILE]

The same checkpoint through Vireo (PROGRAM is bench/logits.cc, built with -DVIREO_BENCH=ON) and through Hugging Face
transformers on the same GPU, both BF16: cosines of the decode rows, the second being given the first one's tokens.
Fails below 0.999. Needs torch and transformers 5 or later.
"""
# SPDX-License-Identifier: Apache-2.0

import argparse
import json
import sys
import time

import numpy
import torch
import transformers
from vireo_rows import PROMPT, vireo_rows

LEAST = 0.999


def transformers_rows(checkpoint, picture, ids):
    processor = transformers.AutoProcessor.from_pretrained(checkpoint)
    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.bfloat16).to("cuda").eval()
    content = [{"type": "image", "path": picture}, {"type": "text", "text": PROMPT}]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    ).to("cuda")
    rows = []
    with torch.inference_mode():
        out = model(**inputs, use_cache=True, logits_to_keep=1)
        rows.append(out.logits[0, -1].float().cpu().numpy())
        length = inputs["input_ids"].shape[1]
        # The positions that the model's own generate() would use.
        delta = int(model.model.rope_deltas.flatten()[0])
        for step, token in enumerate(ids[:-1]):
            position = torch.full((3, 1, 1), length + step + delta, device="cuda")
            out = model(
                input_ids=torch.tensor([[token]], device="cuda"),
                past_key_values=out.past_key_values,
                position_ids=position,
                use_cache=True,
            )
            rows.append(out.logits[0, -1].float().cpu().numpy())
    return length, numpy.stack(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--logits", required=True)
    parser.add_argument("--picture", default="tests/data/scenes/s002.jpg")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json")
    args = parser.parse_args()
    ids, ours = vireo_rows(args.logits, args.checkpoint, args.picture, args.steps, args.device)
    begin = time.time()
    length, theirs = transformers_rows(args.checkpoint, args.picture, ids)
    a, b = ours[:, : theirs.shape[1]].astype(numpy.float64), theirs.astype(numpy.float64)
    cosines = (a * b).sum(1) / numpy.sqrt((a * a).sum(1) * (b * b).sum(1))
    report = {
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "prompt_tokens": length,
        "rows": len(cosines),
        "cosine_prefill_row": float(cosines[0]),
        "cosine_decode_mean": float(cosines[1:].mean()),
        "cosine_decode_least": float(cosines[1:].min()),
        "same_token": int((a.argmax(1) == b.argmax(1)).sum()),
        "seconds": round(time.time() - begin, 1),
    }
    text = json.dumps(report)
    print(text)
    if args.json:
        open(args.json, "w", encoding="utf-8").write(text + "\n")
    sys.exit(0 if cosines.min() > LEAST else 1)


if __name__ == "__main__":
    main()
