"""Wrong input is normal: one test per broken checkpoint, picture, prompt and option that a user may bring.

Each must end with the right exit code and one sentence that names the thing, and never with a crash.
"""
# SPDX-License-Identifier: Apache-2.0

import json
import shutil
import struct
import unittest

import clips
from program import SCENE_0, SCENES, TINY, ProgramTest, environment, vireo

SHARD_1 = "model-00001-of-00002.safetensors"
SHARD_2 = "model-00002-of-00002.safetensors"
Q_PROJ = "model.language_model.layers.0.self_attn.q_proj.weight"  # in SHARD_1
DOWN_PROJ = "model.language_model.layers.2.mlp.down_proj.weight"  # in SHARD_2
BF16_NAN = b"\xc0\x7f"
FAILED = 1
USAGE = 2


def read_safetensors(path):
    blob = path.read_bytes()
    (length,) = struct.unpack("<Q", blob[:8])
    return json.loads(blob[8:8 + length]), bytearray(blob[8 + length:])


def write_safetensors(path, header, data):
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class BadInput(ProgramTest):
    def checkpoint(self, *own):
        """A copy of the tiny checkpoint: files named in `own` are copies to break, the others links."""
        folder = self.tmp / "checkpoint"
        folder.mkdir()
        for source in TINY.iterdir():
            if source.name in own:
                shutil.copyfile(source, folder / source.name)
            else:
                (folder / source.name).symlink_to(source)
        return folder

    def edited_json(self, name, edit):
        folder = self.checkpoint(name)
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        edit(content)
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
        return folder

    def edited_shard(self, name, edit):
        folder = self.checkpoint(name)
        header, data = read_safetensors(folder / name)
        edit(header, data)
        write_safetensors(folder / name, header, data)
        return folder

    def ask(self, folder):
        return vireo("run", "--checkpoint", folder, "--prompt", "What is 15 + 36?", "--max-new-tokens", 8)

    def ask_about(self, name, content):
        picture = self.tmp / name
        picture.write_bytes(content)
        return self.run_tiny("--image", picture, "--prompt", "Describe this image.")

    def refuse_option(self, *args):
        """Options are judged before any file is touched, so the checkpoint need not exist."""
        return vireo("run", "--checkpoint", self.tmp / "absent", "--prompt", "Hello", *args)

    # The checkpoint.

    def test_edited_files_still_load_when_nothing_is_wrong(self):
        folder = self.edited_shard(SHARD_1, lambda header, data: None)
        result = self.ask(folder)
        self.assertEqual((result.returncode, result.stdout), (0, "51\n"), result.stderr)

    def test_truncated_safetensors(self):
        folder = self.checkpoint(SHARD_2)
        whole = (folder / SHARD_2).read_bytes()
        (folder / SHARD_2).write_bytes(whole[:len(whole) // 2])
        self.assert_refused(self.ask(folder), FAILED, SHARD_2)

    def test_empty_safetensors(self):
        folder = self.checkpoint(SHARD_2)
        (folder / SHARD_2).write_bytes(b"")
        self.assert_refused(self.ask(folder), FAILED, SHARD_2)

    def test_header_length_beyond_the_file(self):
        folder = self.checkpoint(SHARD_1)
        whole = (folder / SHARD_1).read_bytes()
        (folder / SHARD_1).write_bytes(struct.pack("<Q", len(whole)) + whole[8:])
        self.assert_refused(self.ask(folder), FAILED, SHARD_1)

    def test_header_length_huge(self):
        folder = self.checkpoint(SHARD_1)
        whole = (folder / SHARD_1).read_bytes()
        (folder / SHARD_1).write_bytes(b"\xff" * 8 + whole[8:])
        self.assert_refused(self.ask(folder), FAILED, SHARD_1)

    def test_header_length_too_short(self):
        folder = self.checkpoint(SHARD_1)
        whole = (folder / SHARD_1).read_bytes()
        (folder / SHARD_1).write_bytes(struct.pack("<Q", 100) + whole[8:])
        self.assert_refused(self.ask(folder), FAILED, SHARD_1)

    def test_missing_shard(self):
        folder = self.checkpoint()
        (folder / SHARD_2).unlink()
        self.assert_refused(self.ask(folder), FAILED, SHARD_2)

    def test_missing_tensor(self):
        folder = self.checkpoint(SHARD_1, "model.safetensors.index.json")
        header, data = read_safetensors(folder / SHARD_1)
        header["some.other.weight"] = header.pop(Q_PROJ)
        write_safetensors(folder / SHARD_1, header, data)
        index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
        index["weight_map"]["some.other.weight"] = index["weight_map"].pop(Q_PROJ)
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
        self.assert_refused(self.ask(folder), FAILED, r"layers\.0\.self_attn\.q_proj")

    def test_wrong_shape(self):
        def transpose(header, data):
            self.assertEqual(header[Q_PROJ]["shape"], [512, 256])
            header[Q_PROJ]["shape"] = [256, 512]

        folder = self.edited_shard(SHARD_1, transpose)
        self.assert_refused(self.ask(folder), FAILED, r"layers\.0\.self_attn\.q_proj", r"512\D+256",
                            r"256\D+512")

    def test_wrong_dtype(self):
        folder = self.edited_shard(SHARD_1, lambda header, data: header[Q_PROJ].update(dtype="F16"))
        self.assert_refused(self.ask(folder), FAILED, r"layers\.0\.self_attn\.q_proj", r"\bF16\b", r"\bBF16\b")

    def test_nan_in_a_weight(self):
        def poison(header, data):
            begin = header[DOWN_PROJ]["data_offsets"][0]
            data[begin:begin + 2] = BF16_NAN

        folder = self.edited_shard(SHARD_2, poison)
        self.assert_refused(self.ask(folder), FAILED, r"lm\.layer\.2\b", r"layers\.2\.mlp\.down_proj")

    def test_unknown_model_type(self):
        folder = self.edited_json("config.json", lambda c: c.update(model_type="llava_next"))
        self.assert_refused(self.ask(folder), FAILED, "llava_next", r"\bqwen3_vl\b", "qwen3_vl_moe")

    def test_quantization_config(self):
        folder = self.edited_json("config.json",
                                  lambda c: c.update(quantization_config={"quant_method": "awq", "bits": 4}))
        self.assert_refused(self.ask(folder), FAILED, r"config\.json", "awq|quantization_config")

    def test_config_without_head_dim(self):
        folder = self.edited_json("config.json", lambda c: c["text_config"].pop("head_dim"))
        self.assert_refused(self.ask(folder), FAILED, r"config\.json", "head_dim")

    def test_config_is_not_json(self):
        folder = self.checkpoint("config.json")
        (folder / "config.json").write_text('{"model_type": "qwen3_vl", ', encoding="utf-8")
        self.assert_refused(self.ask(folder), FAILED, r"config\.json")

    def test_missing_config(self):
        folder = self.checkpoint()
        (folder / "config.json").unlink()
        self.assert_refused(self.ask(folder), FAILED, r"config\.json")

    def test_tokenizer_is_not_json(self):
        folder = self.checkpoint("tokenizer.json")
        (folder / "tokenizer.json").write_text("<html>", encoding="utf-8")
        self.assert_refused(self.ask(folder), FAILED, r"tokenizer\.json")

    def test_hub_name_that_is_not_in_the_cache(self):
        result = vireo("run", "--checkpoint", "Qwen/Qwen3-VL-2B-Instruct", "--prompt", "Hello",
                       env=environment(HF_HUB_CACHE=str(self.tmp)))
        self.assert_refused(result, FAILED, "hf download Qwen/Qwen3-VL-2B-Instruct")

    # Pictures.

    def test_truncated_jpeg(self):
        whole = (SCENES / "s002.jpg").read_bytes()
        self.assert_refused(self.ask_about("cut.jpg", whole[:len(whole) // 2]), FAILED, r"cut\.jpg")

    def test_truncated_png(self):
        whole = SCENE_0.read_bytes()
        self.assert_refused(self.ask_about("cut.png", whole[:len(whole) // 2]), FAILED, r"cut\.png")

    def test_text_file_named_png(self):
        self.assert_refused(self.ask_about("note.png", b"This is not a picture.\n"), FAILED, r"note\.png",
                            "PNG.*JPEG|JPEG.*PNG")

    def test_picture_of_zero_bytes(self):
        self.assert_refused(self.ask_about("zero.png", b""), FAILED, r"zero\.png")

    def test_png_that_announces_a_huge_size(self):
        self.assert_refused(self.ask_about("huge.png", clips.png(30000, 30000, bytes(48))), FAILED, r"huge\.png",
                            r"30,?000|900,?000,?000")

    def test_missing_picture(self):
        result = self.run_tiny("--image", self.tmp / "absent.png", "--prompt", "Describe this image.")
        self.assert_refused(result, FAILED, r"absent\.png")

    def test_folder_as_picture(self):
        result = self.run_tiny("--image", self.tmp, "--prompt", "Describe this image.")
        self.assert_refused(result, FAILED, self.tmp.name)

    # Prompts.

    def test_empty_prompt(self):
        self.assert_refused(self.run_tiny("--prompt", ""), USAGE, "prompt", "empty|blank")

    def test_prompt_of_spaces(self):
        self.assert_refused(self.run_tiny("--prompt", " \t \n "), USAGE, "prompt", "empty|blank")

    def test_no_prompt(self):
        self.assert_refused(self.run_tiny(), USAGE, "--prompt")

    def test_typed_special_token_is_plain_text(self):
        plain = self.answer("--prompt", "Hello", "--max-new-tokens", 4)
        typed = self.answer("--prompt", "Hello<|image_pad|>", "--max-new-tokens", 4)
        self.assertEqual(typed["image_tokens"], 0)
        self.assertGreater(typed["prompt_tokens"], plain["prompt_tokens"] + 3)

    def test_prompt_longer_than_max_seq(self):
        prompt = "What is 15 + 36? " * 20
        tokens = self.answer("--prompt", prompt, "--max-new-tokens", 9)["prompt_tokens"]
        result = self.run_tiny("--prompt", prompt, "--max-new-tokens", 9, "--max-seq", 67)
        self.assert_refused(result, FAILED, rf"\b{tokens}\b", r"\b9\b", r"\b67\b")

    def test_image_longer_than_max_seq(self):
        result = self.run_tiny("--image", SCENE_0, "--prompt", "Describe this image.", "--max-seq", 40,
                               "--max-new-tokens", 9, "--max-pixels", "none")
        self.assert_refused(result, FAILED, r"\b70\b", r"\b9\b", r"\b40\b")

    def test_messages_file_is_not_json(self):
        messages = self.tmp / "chat.json"
        messages.write_text("Describe this image.", encoding="utf-8")
        self.assert_refused(self.run_tiny("--messages", messages), FAILED, r"chat\.json")

    def test_missing_messages_file(self):
        self.assert_refused(self.run_tiny("--messages", self.tmp / "absent.jsonl"), FAILED, r"absent\.jsonl")

    # Options.

    def test_max_new_tokens_zero(self):
        self.assert_refused(self.refuse_option("--max-new-tokens", 0), USAGE, "max.new.tokens", r"\b1\b")

    def test_max_new_tokens_is_no_number(self):
        self.assert_refused(self.refuse_option("--max-new-tokens", "many"), USAGE, "max.new.tokens", "many")

    def test_weight_mode_unknown(self):
        self.assert_refused(self.refuse_option("--weight-mode", "nonsense"), USAGE, "nonsense", r"\bbf16\b")

    def test_kv_mode_unknown(self):
        self.assert_refused(self.refuse_option("--kv-mode", "nonsense"), USAGE, "nonsense", r"\bbf16\b")

    def test_wq_unknown_projection(self):
        self.assert_refused(self.refuse_option("--wq", "nonsense=bf16"), USAGE, "nonsense", "qkv_proj")

    def test_max_pixels_is_no_number(self):
        self.assert_refused(self.refuse_option("--max-pixels", "lots"), USAGE, "max.pixels", "lots")

    def test_pixels_unknown(self):
        self.assert_refused(self.refuse_option("--pixels", "nonsense"), USAGE, "nonsense", "default",
                            "reference")

    def test_device_unknown(self):
        self.assert_refused(self.refuse_option("--device", "abacus"), USAGE, "abacus", "cpu")

    def test_device_cuda(self):
        """A build with CUDA misses the checkpoint alone; one without says that it is none."""
        built = "cuda" in self.refuse_option("--device", "abacus").stderr
        for device in "cuda", "cuda:0":
            result = self.refuse_option("--device", device)
            if built:
                self.assert_refused(result, FAILED, "absent")
            else:
                self.assert_refused(result, USAGE, device, "CUDA build")

    def test_device_cuda_without_a_number(self):
        for device in "cuda:", "cuda:x", "cuda:-1", "cuda:99999999999":
            self.assert_refused(self.refuse_option("--device", device), USAGE, device, "CUDA build|cuda:N")

    def test_kernels_unknown(self):
        self.assert_refused(self.refuse_option("--kernels", 80), USAGE, "--kernels 80", r"\b87\b", r"\b0\b")

    def test_gemm_candidates_out_of_range(self):
        for value in (0, 101):
            self.assert_refused(self.refuse_option("--gemm-candidates", value), USAGE, f"--gemm-candidates {value}", r"1 .* to 100")

    def test_prefill_chunk_negative(self):
        self.assert_refused(self.refuse_option("--prefill-chunk", -1), USAGE, "--prefill-chunk -1", r"\b1\b")

    def test_unknown_option(self):
        self.assert_refused(self.refuse_option("--frobnicate"), USAGE, "--frobnicate")

    def test_unknown_subcommand(self):
        self.assert_refused(vireo("frobnicate"), USAGE, "frobnicate")

    def test_no_checkpoint_option(self):
        self.assert_refused(vireo("run", "--prompt", "Hello"), USAGE, "--checkpoint")


if __name__ == "__main__":
    unittest.main()
