"""Runs the built program for the end-to-end tests: where it is, how it is called, what a refusal looks like.

By hand: `python3 tests/e2e/cli.py` uses build/release; VIREO_BIN and VIREO_TEST_DATA point elsewhere.
"""
# SPDX-License-Identifier: Apache-2.0

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("VIREO_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
BIN = pathlib.Path(os.environ.get("VIREO_BIN") or SOURCE / "build/release/vireo")
DATA = pathlib.Path(os.environ.get("VIREO_TEST_DATA") or SOURCE / "build/release/testdata")
TINY = SOURCE / "models/tiny"
SCENES = SOURCE / "tests/data/scenes"
GOLDENS = DATA / "goldens"

TIMEOUT_S = 300
# What a build with CUDA says of a machine without a GPU, whatever it is asked.
NO_GPU = re.compile(r"^note: no GPU used: [^\n]+\n", re.MULTILINE)
SCENE_0 = SCENES / "s000.png"
SCENE_0_PROMPT = "Describe this image."
SCENE_0_ANSWER = "A black cross on a green background."


def environment(**changes):
    """The caller's environment without what would let a model be found outside the test."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "XDG_CACHE"))}
    env.update(changes)
    return env


def vireo(*args, cwd=None, env=None):
    command = [str(BIN), *map(str, args)]
    result = subprocess.run(command, cwd=cwd, env=env or environment(), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                            timeout=TIMEOUT_S)
    result.stderr = NO_GPU.sub("", result.stderr)
    return result


def json_lines(text):
    return [json.loads(line) for line in text.split("\n") if line]


def write_jsonl(path, requests):
    path.write_text("".join(json.dumps(request) + "\n" for request in requests), encoding="utf-8")
    return path


def golden(name):
    """One case of the tiny goldens, its picture names made absolute."""
    cases = json.loads((GOLDENS / "tiny/index.json").read_text(encoding="utf-8"))
    case = next(c for c in cases if c["name"] == name)
    return dict(case, messages=absolute_media(case["messages"], GOLDENS / "tiny"))


def absolute_media(messages, folder):
    """The messages with every picture name, and every frame name of a video, made a path under `folder`."""

    def place(part):
        part = dict(part)
        if "image" in part:
            part["image"] = str(folder / part["image"])
        if "video" in part:
            part["video"] = [str(folder / frame) for frame in part["video"]]
        return part

    return [m if isinstance(m["content"], str) else dict(m, content=[place(p) for p in m["content"]])
            for m in messages]


class ProgramTest(unittest.TestCase):
    """A test with a folder of its own and the checks that every run shares."""

    maxDiff = None

    def setUp(self):
        self.assertTrue(BIN.is_file(), f"{BIN} is not built")
        folder = tempfile.TemporaryDirectory(prefix="vireo-e2e-")
        self.addCleanup(folder.cleanup)
        self.tmp = pathlib.Path(folder.name)

    def run_tiny(self, *args, **kwargs):
        return vireo("run", "--checkpoint", TINY, *args, **kwargs)

    def answer(self, *args, **kwargs):
        """The one JSON object of a run that must succeed."""
        result = self.run_tiny("--json", *args, **kwargs)
        self.assertEqual(result.returncode, 0, result.stderr)
        objects = json_lines(result.stdout)
        self.assertEqual(len(objects), 1, result.stdout)
        self.assertNotIn("error", objects[0])
        return objects[0]

    def assert_refused(self, result, code, *patterns):
        """One sentence on stderr that names the thing, nothing on stdout, and the exit code; never a crash."""
        shown = f"exit code {result.returncode}\nstdout: {result.stdout}\nstderr: {result.stderr}"
        self.assertGreaterEqual(result.returncode, 0, "died of a signal\n" + shown)
        self.assertNotIn(result.returncode, (134, 139), "crashed\n" + shown)
        self.assertEqual(result.returncode, code, shown)
        self.assertEqual(result.stdout, "", shown)
        self.assertRegex(result.stderr, r"\Avireo: [^\n]+\n\Z", shown)
        for pattern in patterns:
            self.assertRegex(result.stderr, re.compile(pattern, re.IGNORECASE), shown)
