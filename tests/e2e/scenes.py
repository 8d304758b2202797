"""110 chats about 113 pictures against the answers of the reference implementation, in one run of the program.

Every prompt must have the reference's number of tokens. Where its float32 and bfloat16 answers agree, the text must be
that answer; another text is a near tie, and accepted, only where its two best tokens came within MARGIN of each other.
"""
# SPDX-License-Identifier: Apache-2.0

import json
import unittest

from program import SCENES, ProgramTest, absolute_media, json_lines, write_jsonl

CASES = 110
DECIDED = 96  # cases whose float32 and bfloat16 answers are the same text
MARGIN = 0.05  # logits: what rounding to bfloat16 may turn around


class Scenes(ProgramTest):
    def test_answers_and_prompt_tokens(self):
        cases = json.loads((SCENES / "index.json").read_text(encoding="utf-8"))
        self.assertEqual(len(cases), CASES)
        self.assertEqual(sum(c["fp32"] == c["bf16"] for c in cases), DECIDED)
        self.compare(cases, self.ask(cases))

    def ask(self, cases):
        requests = write_jsonl(self.tmp / "scenes.jsonl",
                               [{"messages": absolute_media(c["messages"], SCENES)} for c in cases])
        result = self.run_tiny("--messages", requests, "--json", "--pixels", "reference",
                               "--max-new-tokens", 200)
        self.assertEqual(result.returncode, 0, result.stderr)
        answers = json_lines(result.stdout)
        self.assertEqual(len(answers), len(cases))
        return answers

    def compare(self, cases, answers):
        wrong, ties, same = [], [], 0
        for number, (case, got) in enumerate(zip(cases, answers)):
            name = f"case {number} ({case['task']}, margin {case['min_margin']})"
            if got["prompt_tokens"] != case["prompt_tokens"]:
                wrong.append(f"{name}: {got['prompt_tokens']} prompt tokens, {case['prompt_tokens']} wanted")
            if case["fp32"] != case["bf16"]:
                continue
            if got["text"] == case["fp32"]:
                same += 1
                continue
            listed = ties if case["min_margin"] < MARGIN else wrong
            listed.append(f"{name}:\n  got    {got['text']}\n  wanted {case['fp32']}")
        print(f"{same} of {DECIDED} decided answers are the reference's, {len(ties)} differ at a near tie",
              *ties, sep="\n")
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))
        self.assertEqual(same + len(ties), DECIDED)


if __name__ == "__main__":
    unittest.main()
