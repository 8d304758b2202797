"""The command line's manners: what goes to stdout and stderr, exit codes and signals, help, and every way to bring
pictures, videos and chats."""
# SPDX-License-Identifier: Apache-2.0

import base64
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import unittest

import clips
from program import (BIN, SCENE_0, SCENE_0_ANSWER, SCENE_0_PROMPT, TINY, ProgramTest, environment, golden,
                     json_lines, vireo, write_jsonl)

VIDEO = "video_128x128_7"


def text_request(prompt="What is 15 + 36?"):
    return {"messages": [{"role": "user", "content": prompt}]}


def picture_request(part):
    return {"messages": [{"role": "user", "content": [part, {"type": "text", "text": SCENE_0_PROMPT}]}]}


class Cli(ProgramTest):
    # Output.

    def test_stdout_is_the_answer_and_stats_go_to_stderr(self):
        result = self.run_tiny("--image", SCENE_0, "--prompt", SCENE_0_PROMPT, "--stats")
        self.assertEqual((result.returncode, result.stdout), (0, SCENE_0_ANSWER + "\n"), result.stderr)
        self.assertRegex(result.stderr, r"\d")
        self.assertNotIn(SCENE_0_ANSWER, result.stderr)

    def test_json_fields(self):
        got = self.answer("--image", SCENE_0, "--prompt", SCENE_0_PROMPT)
        self.assertEqual(got["text"], SCENE_0_ANSWER)
        self.assertEqual(got["prompt_tokens"], 70)
        self.assertEqual(got["image_tokens"], 50)  # 322x166 becomes 320x160: 10 by 5 merged patches
        self.assertEqual(got["finish_reason"], "stop")
        self.assertGreater(got["completion_tokens"], 0)
        self.assertIsInstance(got["timings"], dict)
        self.assertTrue(got["timings"])

    def test_low_memory_takes_less(self):
        def megabytes(*options):
            result = self.run_tiny("--prompt", "What is 15 + 36?", "--stats", *options)
            self.assertEqual((result.returncode, result.stdout), (0, "51\n"), result.stderr)
            return int(re.search(r"weights (\d+) MB", result.stderr)[1])

        plain, both = megabytes(), megabytes("--weight-mode", "int8")
        self.assertLess(megabytes("--weight-mode", "int8", "--low-memory"), plain)
        self.assertLess(plain, both)

    def test_memory_is_told_on_a_terminal(self):
        terminal, stderr = pty.openpty()
        try:
            command = [str(BIN), "run", "--checkpoint", str(TINY), "--device", "cpu", "--max-seq", "1024", "--prompt",
                       "What is 15 + 36?", "--json"]
            result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
                                    env=environment(TERM="dumb"), encoding="utf-8", timeout=60)
            told = os.read(terminal, 4096).decode()
        finally:
            os.close(stderr)
            os.close(terminal)
        self.assertEqual((result.returncode, json.loads(result.stdout)["text"]), (0, "51"))
        self.assertRegex(told, r"\Aweights 0\.02 GiB, KV cache 0\.01, scratch 0\.0\d, pictures up to 0\.2\d; [\d.]+ GiB available to cpu \(")

    def test_benchmark_and_its_share_of_the_read_rate(self):
        got = json_lines(self.run_tiny("--benchmark", 8, "--prompt", "Hi", "--device", "cpu", "--json").stdout)[0]
        self.assertEqual((got["decode_steps"], got["prompt_tokens"]), (7, 16))
        self.assertGreaterEqual(got["decode_tokens_per_s_best"], got["decode_tokens_per_s_p50"])
        self.assertGreater(got["read_gb_per_s_p50"], 0.1)
        self.assertGreater(got["decode_share_of_read_p50"], 0)  # a tiny model is read from caches: no upper bound
        reference = self.run_tiny("--benchmark", 2, "--prompt", "Hi", "--device", "reference")
        self.assertRegex(reference.stdout, r"\ndecode_tokens_per_s_p50 +[\d.]+\ndecode_steps +1\n")

    def test_bench_part_by_part(self):
        args = ["bench", "--checkpoint", TINY, "--device", "cpu", "-n", 2, "--rounds", 1, "--json"]
        got = vireo(*args, "--width", 192, "--height", 96, "--first-use", "--profile")
        self.assertEqual(got.returncode, 0, got.stderr)
        figures = json.loads(got.stdout)["figures"]
        for name in ("picture to first id", "new length, extra", "new size, extra", "vision: mergers", "decode: head"):
            self.assertIn(name, figures)
        for phase in ("vision", "prefill", "decode"):
            shares = [f[f"share_of_{phase}"] for name, f in figures.items() if name.startswith(phase + ": ")]
            self.assertGreater(len(shares), 4)
            self.assertAlmostEqual(sum(shares), 1, places=6)
        photo = vireo(*args, "--image", SCENE_0)
        self.assertGreater(json.loads(photo.stdout)["prompt_tokens"], 50)  # of the picture alone
        refused = vireo(*args, "--image", "nowhere.jpg")
        self.assert_refused(refused, 1, "nowhere.jpg")

    def test_fidelity_of_a_tier(self):
        args = ["fidelity", "--checkpoint", TINY, "--device", "cpu"]
        asked = ["-p", "What is 15 + 36?", "--messages", write_jsonl(self.tmp / "scene.jsonl", [[{
            "role": "user", "content": [{"type": "image", "image": str(SCENE_0)},
                                        {"type": "text", "text": SCENE_0_PROMPT}]}]])]
        got = vireo(*args, *asked, "--weight-mode", "int8", "--sweep", "--json")
        self.assertEqual(got.returncode, 0, got.stderr)
        report = json.loads(got.stdout)
        self.assertEqual(report["conversations"], 2)
        self.assertGreater(report["steps"], 4)
        self.assertGreater(report["cosine_mean"], 0.9998)
        self.assertLess(report["cosine_mean"], 1)
        self.assertLessEqual(report["cosine_least"], report["cosine_mean"])
        self.assertEqual(set(report["sweep"]), {"qkv_proj", "o_proj", "gate_up", "mlp_down", "lm_head"})
        self.assertEqual(report["suggestion"], next(iter(report["sweep"])) + "=bf16")
        worse = json.loads(vireo(*args, *asked, "--weight-mode", "w4", "--json").stdout)
        self.assertLess(worse["cosine_mean"], report["cosine_mean"])
        self.assert_refused(vireo(*args, *asked), 2, "bf16 is compared with itself")
        self.assert_refused(vireo(*args, "--weight-mode", "w8"), 2, "no conversation to compare on")
        self.assert_refused(vireo(*args, *asked, "--wq", "lm_head=w8", "--sweep"), 2, "--sweep has no tier")
        self.assert_refused(vireo(*args, *asked, "--weight-mode", "w8", "--steps", 0), 2, "--steps 0")

    def test_length_ends_the_answer(self):
        whole = self.answer("--image", SCENE_0, "--prompt", SCENE_0_PROMPT)
        cut = self.answer("--image", SCENE_0, "--prompt", SCENE_0_PROMPT, "--max-new-tokens", 3)
        self.assertEqual((cut["completion_tokens"], cut["finish_reason"]), (3, "length"))
        self.assertLess(len(cut["text"]), len(whole["text"]))
        self.assertTrue(whole["text"].startswith(cut["text"]), cut["text"])

    def test_backends_threads_and_runners_agree(self):
        for options in (["--device", "cpu"], ["--device", "reference"], ["--threads", 1], ["--threads", 3],
                        ["--no-graph"], ["--weight-mode", "bf16", "--kv-mode", "bf16"]):
            with self.subTest(options=options):
                got = self.answer("--image", SCENE_0, "--prompt", SCENE_0_PROMPT, *options)
                self.assertEqual(got["text"], SCENE_0_ANSWER)

    def test_weight_tiers_on_both_host_backends(self):
        for options in (["--weight-mode", "w8"], ["--weight-mode", "int8"], ["--weight-mode", "w4"],
                        ["--weight-mode", "int8", "--low-memory"], ["--weight-mode", "w4", "--low-memory"],
                        ["--weight-mode", "int4", "--wq", "lm_head=w8", "--wq", "L0.o_proj=bf16"], ["--wq", "gate_up=w4"]):
            for device in ("cpu", "reference"):
                with self.subTest(options=options, device=device):
                    got = self.answer("--image", SCENE_0, "--prompt", SCENE_0_PROMPT, "--device", device, *options)
                    self.assertEqual(got["text"], SCENE_0_ANSWER)

    def test_max_pixels_bounds_the_image(self):
        got = self.answer("--image", SCENE_0, "--prompt", SCENE_0_PROMPT, "--max-pixels", 20000)
        self.assertLessEqual(got["image_tokens"], 20000 // 1024)
        self.assertEqual(got["prompt_tokens"] - got["image_tokens"], 20)

    def test_system_message_is_part_of_the_prompt(self):
        plain = self.answer("--prompt", "What is 15 + 36?", "--max-new-tokens", 4)
        system = self.answer("--prompt", "What is 15 + 36?", "--max-new-tokens", 4, "--system", "Be brief.")
        self.assertEqual(plain["prompt_tokens"], 24)
        self.assertGreater(system["prompt_tokens"], 24)

    # Help.

    def test_help_of_every_subcommand(self):
        top = vireo("--help")
        self.assertEqual(top.returncode, 0, top.stderr)
        listed = re.search(r"subcommands:\n((?: .*\n)+)", top.stdout, re.IGNORECASE)
        self.assertIsNotNone(listed, top.stdout)
        names = re.findall(r"^ {1,4}([a-z][a-z0-9-]*)\b", listed.group(1), re.MULTILINE)
        self.assertTrue({"run", "inspect"} <= set(names), names)
        for name in names:
            with self.subTest(subcommand=name):
                result = vireo(name, "--help")
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertIn("--", result.stdout)

    def test_version(self):
        result = vireo("--version")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"\b\d+\.\d+\.\d+\b")

    def test_inspect_names_the_model(self):
        result = vireo("inspect", TINY)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"\bqwen3_vl\b")

    # Signals.

    def interrupted_by(self, number):
        """Exit code and output of a long run that got a signal after its first answer."""
        requests = write_jsonl(self.tmp / "long.jsonl", [text_request("Spell MOUSE backwards.")] * 20000)
        process = subprocess.Popen(
            [str(BIN), "run", "--checkpoint", str(TINY), "--messages", str(requests), "--json"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
            env=environment())
        try:
            first = process.stdout.readline()
            process.send_signal(number)
            rest, errors = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        return process.returncode, first + rest, errors

    def check_signal(self, number, code):
        returncode, output, errors = self.interrupted_by(number)
        self.assertEqual(returncode, code, errors)
        answers = json_lines(output)
        self.assertLess(len(answers), 20000)
        self.assertEqual(answers[0]["text"], "ESUOM")

    def test_sigint_exits_130(self):
        self.check_signal(signal.SIGINT, 130)

    def test_sigterm_exits_143(self):
        self.check_signal(signal.SIGTERM, 143)

    # Several chats in one run.

    def check_bad_line(self, bad_line):
        good = json.dumps(text_request())
        requests = self.tmp / "chats.jsonl"
        requests.write_text(f"{good}\n{bad_line}\n{good}\n", encoding="utf-8")
        result = self.run_tiny("--messages", requests, "--json")
        self.assertEqual(result.returncode, 1, result.stderr)
        first, bad, last = json_lines(result.stdout)
        self.assertEqual((first["text"], last["text"]), ("51", "51"))
        self.assertEqual(set(bad), {"error"})
        self.assertTrue(bad["error"]["kind"])
        return bad["error"]["message"]

    def test_line_that_is_not_json(self):
        self.check_bad_line('{"messages": [')

    def test_line_with_a_missing_picture(self):
        bad = json.dumps(picture_request({"type": "image", "image": "absent.png"}))
        self.assertIn("absent.png", self.check_bad_line(bad))

    def test_line_with_an_unknown_role(self):
        bad = json.dumps({"messages": [{"role": "narrator", "content": "Hello"}]})
        self.assertIn("narrator", self.check_bad_line(bad))

    def test_line_without_messages(self):
        self.assertIn("messages", self.check_bad_line('{"prompt": "Hello"}'))

    # Several pictures and turns.

    def test_images_keep_their_order(self):
        case = golden("multi_image_160x128_6")
        pictures = [p["image"] for p in case["messages"][0]["content"] if p["type"] == "image"]
        images = [argument for path in pictures for argument in ("--image", path)]
        got = self.answer(*images, "--prompt", "What does each image show?")
        self.assertEqual((got["text"], got["prompt_tokens"]), (case["ref_text"], case["prompt_tokens"]))

    def check_messages(self, request, case):
        path = self.tmp / "chat.json"
        path.write_text(json.dumps(request), encoding="utf-8")
        got = self.answer("--messages", path)
        self.assertEqual((got["text"], got["prompt_tokens"]), (case["ref_text"], case["prompt_tokens"]))

    def test_two_turns(self):
        case = golden("chat_192x160_8")
        self.check_messages({"messages": case["messages"]}, case)

    def test_hugging_face_picture(self):
        case = golden("caption_224x160_2")
        self.check_messages({"messages": case["messages"]}, case)

    def test_picture_path_is_relative_to_the_messages_file(self):
        shutil.copyfile(SCENE_0, self.tmp / "picture.png")
        requests = write_jsonl(self.tmp / "chat.jsonl",
                               [picture_request({"type": "image", "image": "picture.png"})])
        self.assertEqual(self.answer("--messages", requests)["text"], SCENE_0_ANSWER)

    def check_openai_url(self, url):
        part = {"type": "image_url", "image_url": {"url": url}}
        requests = write_jsonl(self.tmp / "chat.jsonl", [picture_request(part)])
        got = self.answer("--messages", requests)
        self.assertEqual((got["text"], got["prompt_tokens"]), (SCENE_0_ANSWER, 70))

    def test_openai_image_url_with_a_path(self):
        self.check_openai_url(str(SCENE_0))

    def test_openai_image_url_with_a_data_uri(self):
        self.check_openai_url("data:image/png;base64," + base64.b64encode(SCENE_0.read_bytes()).decode())

    # Video.

    def frames(self):
        case = golden(VIDEO)
        part = case["messages"][0]["content"][0]
        return case, part["video"], part["fps"]

    def check_video(self, *args):
        case, _, _ = self.frames()
        got = self.answer(*args, "--prompt", case["messages"][0]["content"][1]["text"])
        self.assertEqual((got["text"], got["prompt_tokens"]), (case["ref_text"], case["prompt_tokens"]))

    def test_video_from_a_folder_of_frames(self):
        _, paths, fps = self.frames()
        clip = self.tmp / "clip"
        clip.mkdir()
        for number, path in enumerate(paths):
            shutil.copyfile(path, clip / f"frame{number:03}.png")
        self.check_video("--video", clip, "--fps", fps)

    def test_animated_gif_equals_its_frames(self):
        frames = clips.moving_square(frames=6)
        (self.tmp / "clip.gif").write_bytes(clips.gif(frames, fps=2))
        folder = self.tmp / "clip"
        folder.mkdir()
        for number, frame in enumerate(frames):
            (folder / f"frame{number:03}.png").write_bytes(clips.frame_png(frame))
        prompt = ("--prompt", "Which way does the square move?")
        from_gif = self.answer("--video", self.tmp / "clip.gif", *prompt)
        from_frames = self.answer("--video", folder, "--fps", 2, *prompt)
        self.assertEqual((from_gif["text"], from_gif["prompt_tokens"]),
                         (from_frames["text"], from_frames["prompt_tokens"]))

    def test_frames_are_ordered_by_their_numbers(self):
        frames = clips.moving_square(frames=4)
        answers = []
        for names in ("08", "09", "10", "11"), ("8", "9", "10", "11"):
            folder = self.tmp / f"clip{names[0]}"
            folder.mkdir()
            for name, frame in zip(names, frames):
                (folder / f"{name}.png").write_bytes(clips.frame_png(frame))
            answers.append(self.answer("--video", folder, "--fps", 2, "--prompt", "Which way does the square move?"))
        self.assertEqual(answers[0]["text"], answers[1]["text"])
        self.assertIn("down", answers[0]["text"])

    def test_video_frames_in_messages(self):
        case, _, _ = self.frames()
        self.check_messages({"messages": case["messages"]}, case)

    def test_video_folder_without_frames(self):
        clip = self.tmp / "clip"
        clip.mkdir()
        result = self.run_tiny("--video", clip, "--fps", 2, "--prompt", "Which way does it move?")
        self.assert_refused(result, 1, "clip")


    # Limits of an answer.

    def test_max_new_tokens_of_a_conversation_and_of_the_option(self):
        requests = write_jsonl(self.tmp / "chats.jsonl", [dict(text_request(), max_new_tokens=1), text_request()])
        own = json_lines(self.run_tiny("--messages", requests, "--json").stdout)
        self.assertEqual([a["completion_tokens"] for a in own], [1, 3])
        both = json_lines(self.run_tiny("--messages", requests, "--json", "--max-new-tokens", 2).stdout)
        self.assertEqual([a["completion_tokens"] for a in both], [2, 2])

    # What is refused before a model is loaded.

    def test_options_that_would_be_ignored_are_refused(self):
        self.assert_refused(self.run_tiny("--prompt", "Hi", "--fps", 2), 2, "--fps", "--video")
        requests = write_jsonl(self.tmp / "chats.jsonl", [text_request()])
        self.assert_refused(self.run_tiny("--messages", requests, "--prompt", "Hi"), 2, "--messages", "--prompt")
        self.assert_refused(self.run_tiny("--messages", requests, "--benchmark", 4), 2, "--benchmark")

    def test_frame_rates_that_are_none(self):
        for fps in "0", "-1", "inf", "nan", "1e-9":
            self.assert_refused(self.run_tiny("--prompt", "Hi", "--video", self.tmp, "--fps", fps), 2, "--fps")

    def test_messages_that_are_a_folder_or_empty(self):
        self.assert_refused(self.run_tiny("--messages", self.tmp), 1, self.tmp.name)
        empty = self.tmp / "empty.jsonl"
        empty.write_text("\n")
        self.assert_refused(self.run_tiny("--messages", empty), 1, r"empty\.jsonl", "empty")

    # Where output goes.

    def test_a_full_disk_is_an_error(self):
        for args in ["run", "--checkpoint", TINY, "--prompt", "Hi"], ["inspect", TINY], ["doctor"]:
            with open("/dev/full", "w", encoding="utf-8") as full:
                result = subprocess.run([str(BIN), *map(str, args)], stdout=full, stderr=subprocess.PIPE,
                                        env=environment(), encoding="utf-8", timeout=60)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertRegex(result.stderr, "standard output")

    def test_model_by_name_from_the_hub_cache(self):
        snapshot = self.tmp / "models--Someone--Tiny/snapshots/abc"
        snapshot.mkdir(parents=True)
        for file in TINY.iterdir():
            (snapshot / file.name).symlink_to(file)
        refs = self.tmp / "models--Someone--Tiny/refs"
        refs.mkdir()
        (refs / "main").write_text("abc", encoding="utf-8")
        result = vireo("run", "--checkpoint", "Someone/Tiny", "--prompt", "What is 15 + 36?",
                       env=environment(HF_HUB_CACHE=str(self.tmp)))
        self.assertEqual((result.returncode, result.stdout), (0, "51\n"), result.stderr)

    # What inspect shows.

    def test_inspect_tokenizes_text_as_text(self):
        result = vireo("inspect", TINY, "--tokenize", "<|im_end|>", "--json")
        tokens = json.loads(result.stdout)
        self.assertEqual("".join(t["text"] for t in tokens), "<|im_end|>")
        self.assertGreater(len(tokens), 1)

    def test_inspect_shows_names_escaped(self):
        name = "evil\x1b[2J\nname"
        for file in TINY.iterdir():
            if file.name != "model.safetensors.index.json":
                (self.tmp / file.name).symlink_to(file)
        index = json.loads((TINY / "model.safetensors.index.json").read_text(encoding="utf-8"))
        index["weight_map"][name] = "extra.safetensors"
        (self.tmp / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
        header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        (self.tmp / "extra.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
        plain = vireo("inspect", self.tmp, "--tensors")
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertRegex(plain.stdout, r"\nF32 +\[1\] +evil\\x1b\[2J\\x0aname  extra\.safetensors\n")
        self.assertNotIn("\x1b", plain.stdout)
        tensors = json.loads(vireo("inspect", self.tmp, "--tensors", "--json").stdout)["tensors"]
        self.assertIn(name, [t["name"] for t in tensors])

    def test_inspect_measures_a_picture(self):
        result = vireo("inspect", TINY, "--image", SCENE_0, "--json")
        self.assertEqual(json.loads(result.stdout), {
            "width": 322, "height": 166, "resized_width": 320, "resized_height": 160, "grid_thw": [1, 10, 20],
            "patches": 200, "tokens": 50})

    def test_pictures_made_smaller_are_told_in_one_line(self):
        result = self.run_tiny("--image", SCENE_0, "--prompt", SCENE_0_PROMPT, "--max-seq", 60,
                               "--max-new-tokens", 12)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"\Anote: [^\n]*s000\.png is read at [^\n]*320x160[^\n]*max_seq 60[^\n]*\n\Z")


if __name__ == "__main__":
    unittest.main()
