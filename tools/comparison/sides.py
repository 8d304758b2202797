"""The two programs of tools/compare. In a round both warm up on the same work, then do each measurement once."""
# SPDX-License-Identifier: Apache-2.0

import json
import subprocess
import time

from material import CACHE, CMAKE_ARGS, HEIGHT, HELPERS, PATCHES, WIDTH, Failure, framed, output, question

CONTEXT = 2048
PROMPT_TOKENS = {"short": 16, "prefill": 260, "long": 1000}

# name, what it says in the table, unit, whether more is better
MEASUREMENTS = [
    ("decode_short", "decode, cache of 16 tokens", "tokens/s", True),
    ("decode_long", "decode, cache of 1000 tokens", "tokens/s", True),
    ("prefill", "prefill of 260 text tokens", "tokens/s", True),
    ("vision", f"image encoder, {PATCHES} patches", "ms", False),
    ("start", "start to first token", "ms", False),
]
FLASH_CHOICES = {"off": 0, "on": 1}


class Vireo:
    def __init__(self, options, checkpoint, pictures):
        self.options, self.file = options, CACHE / "questions.jsonl"
        self.command = [options.vireo, "run", "--checkpoint", checkpoint, "--device", "cpu"]
        self.command += ["--threads", options.threads, "--max-seq", CONTEXT, "--json"]
        self.command += ["--weight-mode", options.weight_mode]
        self.start_command = [*self.command, "--prompt", question("A", PROMPT_TOKENS["short"]), "-n", 1]
        steps = options.steps + 1
        asked = [
            ("", question("W", PROMPT_TOKENS["short"]), None, 5),
            ("", question("X", PROMPT_TOKENS["prefill"]), None, 1),
            ("", "Y", pictures[0], 1),
            ("decode_short", question("A", PROMPT_TOKENS["short"]), None, steps),
            ("prefill", question("B", PROMPT_TOKENS["prefill"]), None, 1),
            ("decode_long", question("C", PROMPT_TOKENS["long"]), None, steps),
            ("vision", "Z", pictures[1], 1),
        ]
        self.names = [name for name, *_ in asked]
        self.file.write_text("".join(self.line(*rest) for _, *rest in asked), encoding="utf-8")

    @staticmethod
    def line(text, picture, most):
        content = [{"type": "text", "text": text}]
        if picture:
            content.insert(0, {"type": "image", "image": str(picture)})
        return json.dumps({"messages": [{"role": "user", "content": content}], "max_new_tokens": most}) + "\n"

    def steady(self):
        lines = output([*self.command, "--messages", self.file], "run Vireo").splitlines()
        answers = {name: json.loads(line) for name, line in zip(self.names, lines) if name}
        self.check(answers)
        prefill = answers["prefill"]
        return {
            "decode_short": self.rate(answers["decode_short"]),
            "decode_long": self.rate(answers["decode_long"]),
            "prefill": (prefill["prompt_tokens"] - prefill["cached_tokens"]) * 1000 / prefill["timings"]["prefill_ms"],
            "vision": answers["vision"]["timings"]["vision_ms"],
            "text": answers["decode_short"]["text"],
        }

    def check(self, answers):
        for name, kind in (("decode_short", "short"), ("prefill", "prefill"), ("decode_long", "long")):
            if answers[name]["prompt_tokens"] != PROMPT_TOKENS[kind]:
                raise Failure(f"Vireo read {answers[name]['prompt_tokens']} tokens, not {PROMPT_TOKENS[kind]} ({name})")
        if answers["vision"]["image_tokens"] * 4 != PATCHES:
            raise Failure(f"Vireo made {answers['vision']['image_tokens']} image tokens, not {PATCHES // 4}")

    @staticmethod
    def rate(answer):
        if answer["completion_tokens"] < 2:
            raise Failure("an answer ended at its first token: try another checkpoint")
        return (answer["completion_tokens"] - 1) * 1000 / answer["timings"]["decode_ms"]

    def start(self):
        """Wall time from before the process exists to the line that says its first token."""
        begin = time.perf_counter()
        with subprocess.Popen([str(c) for c in self.start_command], stdout=subprocess.PIPE) as process:
            line = process.stdout.readline()
            spent = time.perf_counter() - begin
        if not line or process.returncode != 0:
            raise Failure("Vireo did not answer; its own words are above")
        return spent * 1000

    def round(self):
        return {**self.steady(), "start": self.start()}

    def about(self):
        benchmark = json.loads(output([*self.start_command[:-2], "--benchmark", 2], "run Vireo"))
        return {
            "version": output([self.options.vireo, "--version"], "ask Vireo for its version").strip(),
            "device": benchmark["device"],
            "weight_bytes": benchmark["weight_bytes"],
            "command": " ".join(map(str, [*self.command, "--messages", self.file])),
            "start_command": " ".join(map(str, self.start_command)),
        }


class LlamaCpp:
    def __init__(self, options, python, text, mmproj):
        self.python = python
        self.plan = {
            "text": str(text),
            "mmproj": str(mmproj),
            "pixels": str(CACHE / "noise-1.rgb"),
            "width": WIDTH,
            "height": HEIGHT,
            "threads": options.threads,
            "context": CONTEXT,
            "steps": options.steps,
            "prompts": {
                "short": framed(question("A", PROMPT_TOKENS["short"])),
                "prefill": framed(question("B", PROMPT_TOKENS["prefill"])),
                "long": framed(question("C", PROMPT_TOKENS["long"])),
            },
        }

    def child(self, mode):
        plan = json.dumps({**self.plan, "mode": mode})
        return json.loads(output([self.python, HELPERS / "measure.py", plan], "run llama.cpp").splitlines()[-1])

    def steady(self):
        result = self.child("steady")
        if result["prompt_tokens"] != PROMPT_TOKENS or result["image_tokens"] * 4 != PATCHES:
            sizes = f"{result['prompt_tokens']} tokens and {result['image_tokens']} image tokens"
            raise Failure(f"llama.cpp read {sizes}: other sizes than Vireo")
        return result

    def round(self):
        return {**self.steady(), **self.child("start")}

    def choose_flash(self):
        """Flash attention on or off, for each measurement whichever is faster here."""
        tried = {}
        for word, flash in FLASH_CHOICES.items():
            self.plan["flash"] = {name: flash for name, *_ in MEASUREMENTS}
            tried[word] = self.round()
        self.chosen = {}
        for name, _, _, more in MEASUREMENTS:
            best = max if more else min
            self.chosen[name] = best(FLASH_CHOICES, key=lambda word: tried[word][name])
        self.plan["flash"] = {name: FLASH_CHOICES[word] for name, word in self.chosen.items()}
        return tried["on"]

    def about(self, result):
        return {
            "version": f"llama-cpp-python {result['version']}",
            "system_info": result["system_info"],
            "cmake_args": CMAKE_ARGS,
            "flash_attention": self.chosen,
            "command": f"{self.python} {HELPERS / 'measure.py'} PLAN",
            "plan": self.plan,
        }
