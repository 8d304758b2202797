"""What tools/compare compares: llama.cpp's build, the checkpoint, its copy in GGUF, pictures and questions."""
# SPDX-License-Identifier: Apache-2.0

import hashlib
import os
import pathlib
import random
import struct
import subprocess
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HELPERS = ROOT / "tools" / "comparison"
CONVERTER, QUANTIZER = HELPERS / "convert.py", HELPERS / "quantize.py"
VENV = ROOT / "build" / "compare-venv"
CACHE = ROOT / "build" / "compare"
CMAKE_ARGS = "-DGGML_NATIVE=ON -DGGML_OPENMP=ON -DGGML_LLAMAFILE=ON -DCMAKE_BUILD_TYPE=Release"
WIDTH, HEIGHT, PATCHES = 864, 288, 972
# Vireo's weight modes, and the type of llama.cpp's matrices that each is compared with.
GGUF_TYPES = {"bf16": "BF16", "int8": "Q8_0", "w8": "Q8_0", "int4": "Q4_0", "w4": "Q4_0"}
FRAME_TOKENS = 8  # what the chat template puts around a question


class Failure(Exception):
    pass


def say(text):
    print(f"tools/compare: {text}", file=sys.stderr, flush=True)


def run(command, what, **options):
    result = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, text=True, **options)
    if result.returncode != 0:
        words = f": {result.stderr.strip()[-800:]}" if result.stderr else ""
        raise Failure(f"could not {what}{words}")
    return result.stdout


def output(command, what):
    return run(command, what, capture_output=True)


def ensure_llama_cpp(version):
    python = VENV / "bin" / "python"
    wanted = [f"llama-cpp-python=={version}", "gguf", "numpy"]
    made_of = "\n".join([*wanted, CMAKE_ARGS])
    marker = VENV / "made-of"
    if marker.is_file() and marker.read_text() == made_of:
        return python
    say(f"building llama.cpp from {wanted[0]} into {VENV.relative_to(ROOT)}")
    run([sys.executable, "-m", "venv", VENV], "make a virtual environment")
    jobs = str(len(os.sched_getaffinity(0)))
    env = dict(os.environ, CMAKE_ARGS=CMAKE_ARGS, CMAKE_BUILD_PARALLEL_LEVEL=jobs)
    install = [python, "-m", "pip", "install", "--quiet", "--no-binary", "llama-cpp-python", *wanted]
    run(install, "build llama.cpp; its own words are above", env=env)
    marker.write_text(made_of)
    return python


def ensure_checkpoint(options):
    if options.checkpoint:
        return options.checkpoint.resolve()
    cut = [f"--layers={options.layers}", f"--vision-depth={options.vision_depth}"]
    folder = CACHE / f"random-{options.size}-{options.layers or 'all'}-{options.vision_depth or 'all'}"
    if not (folder / "config.json").is_file():
        command = [options.vireo, "random-checkpoint", "--size", options.size, "--seed", "1", *cut, "-o", folder]
        run(command, "write a random checkpoint", stdout=sys.stderr)
    return folder


def ensure_gguf(python, checkpoint, kind):
    """The two files of llama.cpp, named after the checkpoint that they copy: text of the type kind, and vision."""
    stem = f"{checkpoint.name}-{fingerprint(checkpoint)}"
    text, vision = CACHE / f"{stem}.text.bf16.gguf", CACHE / f"{stem}.mmproj.gguf"
    if not (text.is_file() and vision.is_file()):
        say(f"copying {checkpoint} to GGUF")
        run([python, CONVERTER, checkpoint, text, vision], "copy the checkpoint to GGUF")
    quantized = CACHE / f"{stem}.text.{kind.lower()}.gguf"
    if not quantized.is_file():
        say(f"quantising it to {kind}")
        output([python, QUANTIZER, checkpoint, text, quantized, kind], f"quantise to {kind}")
    return quantized, vision


def fingerprint(checkpoint):
    """Differs when the checkpoint's files or what copies them have changed."""
    digest = hashlib.sha256(CONVERTER.read_bytes() + QUANTIZER.read_bytes())
    for source in [checkpoint / "config.json", *sorted(checkpoint.glob("*.safetensors"))]:
        status = source.stat()
        digest.update(f"{source.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:12]


def png(pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = WIDTH * 3
    lines = b"".join(b"\0" + pixels[i : i + row] for i in range(0, len(pixels), row))
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def ensure_pictures():
    """Two pictures of noise: a warm-up must not leave the measured one in a cache."""
    for number in range(2):
        pixels = random.Random(number).randbytes(WIDTH * HEIGHT * 3)
        (CACHE / f"noise-{number}.rgb").write_bytes(pixels)
        (CACHE / f"noise-{number}.png").write_bytes(png(pixels))
    return [CACHE / f"noise-{number}.png" for number in range(2)]


def question(first_word, tokens):
    """A question that makes a prompt of so many tokens."""
    return first_word + " the" * (tokens - FRAME_TOKENS - 1)


def framed(text):
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
