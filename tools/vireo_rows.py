"""Logits of Vireo for comparing with: what bench/logits.cc, built with -DVIREO_BENCH=ON, writes."""
# SPDX-License-Identifier: Apache-2.0

import json
import subprocess
import tempfile

import numpy

PROMPT = "Describe this image in one sentence."


def vireo_rows(program, checkpoint, picture, steps, device, chunk=0):
    """The ids that were chosen, and the prompt's last row and those of `steps` greedy decode steps; 0 is the default chunk of prefill."""
    with tempfile.NamedTemporaryFile() as out:
        command = [program, checkpoint, picture, PROMPT, str(steps), out.name, device, str(chunk)]
        ids = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rows = numpy.fromfile(out.name, dtype=numpy.float32).reshape(steps + 1, -1)
    return ids, rows
