"""Quantised folders: written by the command, told of by inspect, loaded by the others, and refused where they are not what they say."""
# SPDX-License-Identifier: Apache-2.0

import json
import resource
import signal
import subprocess
import unittest

from program import (BIN, SCENE_0, SCENE_0_ANSWER, SCENE_0_PROMPT, SCENES, TINY, ProgramTest, absolute_media, environment, vireo,
                     write_jsonl)

FAILED, USAGE = 1, 2


class Quantize(ProgramTest):
    def quantize(self, *args, checkpoint=TINY, out="model"):
        return vireo("quantize", "--checkpoint", checkpoint, "--out", self.tmp / out, *args)

    def made(self, *args, out="model"):
        """The folder, and what the command says of it."""
        result = self.quantize("--json", *args, out=out)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return self.tmp / out, json.loads(result.stdout)

    def ask(self, folder, *args):
        return vireo("run", "--checkpoint", folder, "--image", SCENE_0, "--prompt", SCENE_0_PROMPT, *args)

    def change_config(self, folder, **changes):
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config["quantization_config"].update(changes)
        path.write_text(json.dumps(config))

    def test_every_command_loads_it(self):
        for options in (["--weight-mode", "w8"], ["--weight-mode", "w4", "--wq", "lm_head=int8", "--keep-bf16"],
                        ["--wq", "gate_up=int4"]):
            with self.subTest(options=options):
                folder, report = self.made(*options, out="-".join(options))
                self.assertEqual(report["source_bytes"], 17704704)
                self.assertEqual(report["bytes"] < 17704704, "--keep-bf16" not in options)
                for device in ("cpu", "reference"):
                    self.assertEqual(self.ask(folder, "--device", device).stdout, SCENE_0_ANSWER + "\n")
                told = json.loads(vireo("inspect", folder, "--json").stdout)
                self.assertEqual(told["quantised"], {"keep_bf16": "--keep-bf16" in options, "tiers": report["tiers"]})
                self.assertEqual(told["text_parameters"] + told["vision_parameters"], 8852352)
                bench = vireo("bench", "--checkpoint", folder, "--device", "cpu", "-n", 2, "--rounds", 1, "--json",
                              "--image", SCENE_0)
                self.assertEqual(bench.returncode, 0, bench.stderr)

    def test_words_for_people(self):
        written = self.quantize("--weight-mode", "w8", "--wq", "L0.o_proj=bf16")
        self.assertRegex(written.stdout, r"\Awrote \S+model: 0\.01 GB of 0\.02 GB in [\d.]+ s\n")
        for text in (written.stdout, vireo("inspect", self.tmp / "model").stdout):
            self.assertRegex(text, r"\n +o_proj +bf16 +1 matrix, 0\.3 MB\n +o_proj +w8 +5 matrices, 0\.7 MB\n")
        self.assertIn("quantised codes and scales alone\n", vireo("inspect", self.tmp / "model").stdout)
        self.assertRegex(vireo("quantize", "--help").stdout, r"(?s)without --keep-bf16.*prefill")

    def test_fidelity_of_a_folder_that_keeps_bf16(self):
        folder, _ = self.made("--weight-mode", "int4", "--keep-bf16")
        got = vireo("fidelity", "--checkpoint", folder, "-p", "What is 15 + 36?", "--json", "--device", "cpu")
        at_load = vireo("fidelity", "--checkpoint", TINY, "-p", "What is 15 + 36?", "--json", "--device", "cpu",
                        "--weight-mode", "int4")
        self.assertEqual(json.loads(got.stdout), json.loads(at_load.stdout))

    def scenes(self, *numbers, name="scenes.jsonl"):
        """A file of conversations about some of the scenes."""
        cases = json.loads((SCENES / "index.json").read_text(encoding="utf-8"))
        return write_jsonl(self.tmp / name, [absolute_media(cases[i]["messages"], SCENES) for i in numbers])

    def test_calibrated(self):
        scenes = self.scenes(1, 2, 4, 9)
        folder, report = self.made("--weight-mode", "w4", "--keep-bf16", "--calibrate", scenes)
        calibrated = report["calibrated"]
        self.assertEqual((calibrated["calibration"], calibrated["conversations"]), (str(scenes), 4))
        self.assertEqual(len(calibrated["projections"]), 25)
        for p in calibrated["projections"]:
            self.assertLess(p["error"], p["plain_error"], p)
        told = json.loads((folder / "config.json").read_text())["quantization_config"]["folded"]
        self.assertEqual((told["calibration"], told["conversations"]), ("scenes.jsonl", 4))
        self.assertEqual(told["alpha"], {p["projection"]: p["alpha"] for p in calibrated["projections"]})
        for options in ([], ["--weight-mode", "bf16"], ["--weight-mode", "int8"]):
            self.assertEqual(self.ask(folder, *options).stdout, SCENE_0_ANSWER + "\n")
        others = ["--messages", self.scenes(0, 3, 5, 10), "--weight-mode", "w4", "--device", "cpu", "--json"]
        got = json.loads(vireo("fidelity", "--checkpoint", folder, *others).stdout)
        plain = json.loads(vireo("fidelity", "--checkpoint", TINY, *others).stdout)
        self.assertEqual(got["steps"], plain["steps"])
        self.assertLess(1 - got["cosine_mean"], 1 - plain["cosine_mean"])

    def test_calibrated_eight_bits(self):
        scenes, others = self.scenes(1, 2, 4, 9), self.scenes(0, 3, 5, 10, name="others.jsonl")
        for tier in ("w8", "int8"):
            with self.subTest(tier=tier):
                folder, report = self.made("--weight-mode", tier, "--keep-bf16", "--calibrate", scenes, out=tier)
                self.assertEqual({p["alpha"] for p in report["calibrated"]["projections"]}, {0})
                self.assertTrue(json.loads((folder / "config.json").read_text())["tie_word_embeddings"])
                self.assertEqual(self.ask(folder).stdout, SCENE_0_ANSWER + "\n")
                options = ["--messages", others, "--weight-mode", tier, "--device", "cpu", "--json"]
                got = json.loads(vireo("fidelity", "--checkpoint", folder, *options).stdout)
                plain = json.loads(vireo("fidelity", "--checkpoint", TINY, *options).stdout)
                self.assertLess(1 - got["cosine_mean"], 1 - plain["cosine_mean"])
                self.assertGreaterEqual(got["same_texts"], plain["same_texts"])

    def test_words_about_a_calibration(self):
        written = self.quantize("--wq", "mlp_down=int4", "--calibrate", self.scenes(1))
        self.assertRegex(written.stdout, r"\n +calibrated by 1 conversation: errors of 6 products \d+ % smaller")
        self.assertEqual(written.stderr, "")

    def test_refused_calibrations(self):
        self.assert_refused(self.quantize("--calibrate", self.scenes(0)), USAGE, "nothing would be quantised")
        self.assert_refused(self.quantize("--weight-mode", "w4", "--calibrate", self.scenes()), USAGE,
                            "scenes.jsonl has no conversation")
        self.assert_refused(self.quantize("--weight-mode", "w4", "--calibrate", "nowhere.jsonl"), FAILED, "nowhere.jsonl")
        broken = self.tmp / "broken.jsonl"
        broken.write_text('[{"role": "user", "content": "Hi"}]\n[{"role": 7}]\n')
        self.assert_refused(self.quantize("--weight-mode", "w4", "--calibrate", broken), FAILED, "broken.jsonl line 2")
        (self.tmp / "noise.png").write_bytes(b"noise")
        for picture in ("noise.png", "missing.png"):
            write_jsonl(broken, [[{"role": "user", "content": [{"type": "image", "image": picture}]}]])
            self.assert_refused(self.quantize("--weight-mode", "w4", "--calibrate", broken), FAILED,
                                "conversation 1 of .*broken.jsonl", picture)
        folder, _ = self.made("--weight-mode", "w8")
        again = self.quantize("--weight-mode", "w4", "--calibrate", self.scenes(0), checkpoint=folder, out="again")
        self.assert_refused(again, USAGE, "quantised already")
        self.assertFalse((self.tmp / "again").exists())

    def test_refused_options(self):
        self.assert_refused(self.quantize(), USAGE, "nothing would be quantised", "--weight-mode", "--wq")
        self.assert_refused(self.quantize("--weight-mode", "w5"), USAGE, "w5", r"\bw8\b")
        self.assert_refused(self.quantize("--wq", "lm_head"), USAGE, "lm_head", "PROJECTION=TIER")
        self.assert_refused(vireo("quantize", "--checkpoint", TINY, "--weight-mode", "w8"), USAGE, "--out")
        self.assert_refused(self.quantize("--weight-mode", "w8", checkpoint="nowhere"), FAILED, "nowhere")
        self.assertFalse((self.tmp / "model").exists())

    def test_refused_folders(self):
        folder, _ = self.made("--weight-mode", "w8")
        self.assert_refused(self.quantize("--weight-mode", "w8"), USAGE, "holds files", "--out")
        self.assert_refused(self.quantize("--weight-mode", "w8", checkpoint=folder, out="again"), USAGE,
                            "quantised already")
        self.assert_refused(self.ask(folder, "--weight-mode", "w4"), USAGE, "as w4", "as w8 alone", "--keep-bf16")
        self.assert_refused(self.ask(folder, "--weight-mode", "bf16"), USAGE, "as bf16", "as w8 alone")

    def test_refused_configs(self):
        folder, _ = self.made("--weight-mode", "w8")
        original = (folder / "config.json").read_text()
        for changes, *parts in (({"format_version": 7}, "format_version", "7", "only 1"),
                                ({"quant_method": "gptq"}, "gptq"),
                                ({"group_size": 128}, "group_size", "128", "only 16"),
                                ({"tiers": {"gate_up": "w5"}}, "gate_up", "w5", "int4"),
                                ({"tiers": {"nose": "w8"}}, "nose", "6 layers"),
                                ({"tiers": {"mlp_down": "w4"}}, "mlp.down_proj|q_proj", "F8_E4M3")):
            with self.subTest(changes=changes):
                (folder / "config.json").write_text(original)
                self.change_config(folder, **changes)
                self.assert_refused(self.ask(folder), FAILED, *parts)

    def test_a_killed_run_leaves_nothing_that_looks_whole(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        killed = subprocess.run([str(BIN), "quantize", "--checkpoint", str(TINY), "--weight-mode", "w8", "--out",
                                 str(self.tmp / "model")], preexec_fn=limit, env=environment(), timeout=60,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(killed.returncode, -signal.SIGXFSZ, killed.stderr)
        self.assertEqual([p.name for p in self.tmp.iterdir()], ["model.partial"])
        folder, _ = self.made("--weight-mode", "w8")
        self.assertEqual([p.name for p in self.tmp.iterdir()], ["model"])
        self.assertEqual(self.ask(folder).stdout, SCENE_0_ANSWER + "\n")


if __name__ == "__main__":
    unittest.main()
