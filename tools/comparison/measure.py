"""measure.py PLAN (a JSON object)

Times llama.cpp through the C interface of llama-cpp-python and prints one JSON object. Mode "steady": a warm-up of each
kind, then decode, prefill and the image encoder, each once. Mode "start": loading the model and the first token of an
answer. Only llama.cpp's own calls are inside the clock; choosing a token is not. Run by tools/compare in its virtual
environment.
"""
# SPDX-License-Identifier: Apache-2.0

import ctypes
import json
import os
import pathlib
import sys
import time

import llama_cpp
import llama_cpp.mtmd_cpp as mtmd
import numpy

IMAGE_CHUNK = 1


@llama_cpp.llama_log_callback
def quiet(_level, _text, _data):
    pass


def hide_logs():
    for set_log in (llama_cpp.llama_log_set, mtmd.mtmd_log_set, mtmd.mtmd_helper_log_set):
        set_log(quiet, ctypes.c_void_p(0))


def must(value, what):
    if not value:
        raise SystemExit(f"llama.cpp could not {what}")
    return value


def milliseconds(action):
    begin = time.perf_counter()
    action()
    return (time.perf_counter() - begin) * 1000


class Text:
    """A loaded language model and one context for each setting of flash attention that was asked for."""

    def __init__(self, plan):
        self.plan, self.contexts = plan, {}
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = must(llama_cpp.llama_model_load_from_file(plan["text"].encode(), params), "load " + plan["text"])
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.size = llama_cpp.llama_vocab_n_tokens(self.vocab)

    def context(self, flash):
        if flash not in self.contexts:
            params = llama_cpp.llama_context_default_params()
            params.n_ctx = self.plan["context"]
            params.n_threads = params.n_threads_batch = self.plan["threads"]
            params.flash_attn_type = flash
            self.contexts[flash] = must(llama_cpp.llama_init_from_model(self.model, params), "make a context")
        return self.contexts[flash]

    def tokens(self, text):
        raw = text.encode()
        room = (llama_cpp.llama_token * (len(raw) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, raw, len(raw), room, len(room), False, True)
        return list(room[:count])

    def words(self, tokens):
        text, room = b"", ctypes.create_string_buffer(256)
        for token in tokens:
            size = llama_cpp.llama_token_to_piece(self.vocab, token, room, len(room), 0, False)
            text += room.raw[:size]
        return text.decode(errors="replace")

    def step(self, context, tokens):
        """Milliseconds of one llama_decode, and the most likely next token."""
        array = (llama_cpp.llama_token * len(tokens))(*tokens)  # the batch points into it
        batch = llama_cpp.llama_batch_get_one(array, len(tokens))

        def decode():
            must(llama_cpp.llama_decode(context, batch) == 0, "decode")
            llama_cpp.llama_synchronize(context)

        spent = milliseconds(decode)
        logits = numpy.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), shape=(self.size,))
        return spent, int(logits.argmax())

    def answer(self, prompt, steps, flash):
        """Times of a prompt and of the decode steps after it, from an empty cache."""
        context, tokens = self.context(flash), self.tokens(prompt)
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), False)
        prefill_ms, token = self.step(context, tokens)
        answer, decode_ms = [token], 0.0
        for _ in range(steps):
            spent, token = self.step(context, [token])
            decode_ms += spent
            answer.append(token)
        words = self.words(answer)
        return {"prompt_tokens": len(tokens), "prefill_ms": prefill_ms, "decode_ms": decode_ms, "text": words}


class Vision:
    def __init__(self, plan, text):
        self.plan = plan
        params = mtmd.mtmd_context_params_default()
        params.use_gpu = params.print_timings = params.warmup = False
        params.n_threads = plan["threads"]
        params.flash_attn_type = plan["flash"]["vision"]
        context = mtmd.mtmd_init_from_file(plan["mmproj"].encode(), text.model, params)
        self.context = must(context, "load " + plan["mmproj"])

    def image_chunk(self):
        plan = self.plan
        pixels = pathlib.Path(plan["pixels"]).read_bytes()
        raw = (ctypes.c_uint8 * len(pixels)).from_buffer_copy(pixels)
        bitmap = must(mtmd.mtmd_bitmap_init(plan["width"], plan["height"], raw), "take the picture")
        marker = mtmd.mtmd_default_marker()
        text = mtmd.mtmd_input_text(text=marker, text_len=len(marker), add_special=False, parse_special=True)
        self.chunks = mtmd.mtmd_input_chunks_init()
        bitmaps = (mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap)
        must(mtmd.mtmd_tokenize(self.context, self.chunks, ctypes.byref(text), bitmaps, 1) == 0, "cut the picture")
        found = [mtmd.mtmd_input_chunks_get(self.chunks, i) for i in range(mtmd.mtmd_input_chunks_size(self.chunks))]
        return next(c for c in found if mtmd.mtmd_input_chunk_get_type(c) == IMAGE_CHUNK)

    def times(self, runs):
        chunk = self.image_chunk()

        def encode():
            must(mtmd.mtmd_encode_chunk(self.context, chunk) == 0, "encode the picture")

        return mtmd.mtmd_input_chunk_get_n_tokens(chunk), [milliseconds(encode) for _ in range(runs)]


def steady(plan):
    text = Text(plan)
    prompts, flash, steps = plan["prompts"], plan["flash"], plan["steps"]
    text.answer(prompts["short"], 4, flash["decode_short"])
    text.answer(prompts["prefill"], 0, flash["prefill"])
    short = text.answer(prompts["short"], steps, flash["decode_short"])
    prefill = text.answer(prompts["prefill"], 0, flash["prefill"])
    long = text.answer(prompts["long"], steps, flash["decode_long"])
    image_tokens, encode_ms = Vision(plan, text).times(2)
    return {
        "decode_short": steps * 1000 / short["decode_ms"],
        "decode_long": steps * 1000 / long["decode_ms"],
        "prefill": prefill["prompt_tokens"] * 1000 / prefill["prefill_ms"],
        "vision": encode_ms[-1],
        "image_tokens": image_tokens,
        "prompt_tokens": {k: v["prompt_tokens"] for k, v in (("short", short), ("prefill", prefill), ("long", long))},
        "text": short["text"],
        "system_info": llama_cpp.llama_print_system_info().decode().strip(),
        "version": llama_cpp.__version__,
    }


def start(plan):
    spent = milliseconds(lambda: Text(plan).answer(plan["prompts"]["short"], 0, plan["flash"]["start"]))
    return {"start": spent}


def main():
    plan = json.loads(sys.argv[1])
    hide_logs()
    llama_cpp.llama_backend_init()
    print(json.dumps({"steady": steady, "start": start}[plan["mode"]](plan)), flush=True)
    os._exit(0)  # what unloading costs is not part of the comparison


if __name__ == "__main__":
    main()
