"""vireo chat in a pseudo terminal: questions, commands, keys and signals; and from a file, without a terminal."""
# SPDX-License-Identifier: Apache-2.0

import json
import os
import re
import shutil
import signal
import subprocess
import unittest

import clips
from program import BIN, SCENE_0, SCENE_0_ANSWER, SCENE_0_PROMPT, TINY, ProgramTest, environment, json_lines
from terminal import BACKSPACE, CTRL_C, CTRL_D, CTRL_Z, UP, Terminal

SUM, SUM_ANSWER = "What is 15 + 36?", "51"
PROMPT, MORE = r"(?:\A|\n)> ", r"\n\.\.\. "
# An answer that says its first letter again and again, until it is stopped.
ENDLESS = ["--frequency-penalty", "-100", "--max-new-tokens", "3500"]


class Chat(ProgramTest):
    def environment(self, **changes):
        return environment(XDG_STATE_HOME=str(self.tmp), TERM="xterm", NO_COLOR="1", **changes)

    def command(self, *args, device="cpu"):
        return [str(BIN), "chat", "--checkpoint", str(TINY), "--device", device, *args]

    def chat(self, *args, device="cpu", **changes):
        """At its first prompt."""
        terminal = Terminal(self.command(*args, device=device), self.environment(**changes))
        self.addCleanup(terminal.__exit__)
        terminal.until(PROMPT)
        return terminal

    def entered(self, terminal, line):
        """What a line brings, up to the next prompt."""
        terminal.type(line + "\r")
        terminal.until(re.escape(line) + "\n")
        terminal.seen -= 1  # the prompt may come at once
        return terminal.until(PROMPT).strip("\n")

    def leave(self, terminal):
        terminal.type(CTRL_D)
        self.assertEqual(terminal.exit_code(), 0)

    def saved(self, terminal, name="chat.json"):
        path = self.tmp / name
        self.assertIn(str(path), self.entered(terminal, f"/save {path}"))
        return json.loads(path.read_text(encoding="utf-8"))["messages"]

    # Questions.

    def test_two_turns_and_the_end(self):
        terminal = self.chat()
        self.assertIn("/help lists the commands", terminal.screen)
        self.assertEqual(self.entered(terminal, SUM), SUM_ANSWER)
        self.assertTrue(self.entered(terminal, SUM))
        self.assertEqual([m["role"] for m in self.saved(terminal)], ["user", "assistant"] * 2)
        self.leave(terminal)

    def test_several_lines(self):
        terminal = self.chat()
        for lines, text in ((["What is \\", "15 + 36?"], "What is \n15 + 36?"),
                            (['"""What is', '15 + 36?"""'], "What is\n15 + 36?"),
                            (['"""', "What is", "", "15 + 36?", '"""'], "What is\n\n15 + 36?")):
            self.entered(terminal, "/clear")
            for line in lines[:-1]:
                terminal.type(line + "\r")
                terminal.until(MORE)
            self.entered(terminal, lines[-1])
            self.assertEqual(self.saved(terminal)[0]["content"], [{"type": "text", "text": text}])
        self.leave(terminal)

    def test_any_language_is_typed_whatever_the_locale(self):
        for locale in "C.UTF-8", "C", "":
            terminal = self.chat(LC_ALL=locale, LANG="")
            terminal.type("Grüße, 世界, ё" + BACKSPACE * 2)
            terminal.until("Grüße, 世界, ё")
            terminal.type("\r")
            terminal.until(PROMPT)
            self.assertEqual(self.saved(terminal)[0]["content"][0]["text"], "Grüße, 世界,")
            self.leave(terminal)

    # Commands.

    def test_picture(self):
        terminal = self.chat()
        self.assertIn("goes with the next question", self.entered(terminal, f"/image {SCENE_0}"))
        self.assertEqual(self.entered(terminal, SCENE_0_PROMPT), SCENE_0_ANSWER)
        self.leave(terminal)

    def test_quoted_and_completed_paths(self):
        picture = self.tmp / "a picture's name.png"
        shutil.copyfile(SCENE_0, picture)
        terminal = self.chat(HOME=str(self.tmp))
        for typed in picture, f'"{picture}"', re.sub(r"([ '])", r"\\\1", str(picture)), "~/'a picture'\\''s name.png'":
            self.assertIn("goes with the next question", self.entered(terminal, f"/image {typed}"))
        terminal.type(f"/image {self.tmp}/a\t\r")
        terminal.until("goes with the next question")
        terminal.until(PROMPT)
        self.entered(terminal, "Hello")
        images = [part["image"] for part in self.saved(terminal)[0]["content"] if part["type"] == "image"]
        self.assertEqual(images, [str(picture)] * 5)

    def test_bad_picture_is_told_and_forgotten(self):
        bad = self.tmp / "bad.png"
        bad.write_bytes(b"no picture")
        terminal = self.chat()
        self.assertIn("absent.png", self.entered(terminal, "/image absent.png"))
        self.entered(terminal, f"/image {bad}")
        self.assertRegex(self.entered(terminal, SUM), r"vireo: \S*bad\.png[^\n]*\n[^\n]*forgotten")
        self.assertEqual(self.entered(terminal, SUM), SUM_ANSWER)
        self.leave(terminal)

    def test_clear_help_and_unknown_commands(self):
        terminal = self.chat("--stats")
        self.entered(terminal, SUM)
        self.entered(terminal, "/clear")
        self.assertRegex(self.entered(terminal, SUM), r"\A51\n[^\n]*\nprompt +24 tokens")
        listed = self.entered(terminal, "/help")
        for command in "/image", "/video", "/system", "/clear", "/save", "/stats", "/help", "/quit":
            self.assertIn("\n  " + command, listed)
        self.assertRegex(self.entered(terminal, "/imagine"), r"\Avireo: /imagine .*/help")
        terminal.type("/quit\r")
        self.assertEqual(terminal.exit_code(), 0)

    def test_saved_chat_is_read_by_run(self):
        terminal = self.chat()
        self.entered(terminal, f"/image {SCENE_0}")
        self.entered(terminal, SCENE_0_PROMPT)
        messages = self.saved(terminal)
        self.assertEqual(messages, [
            {"role": "user", "content": [{"type": "image", "image": str(SCENE_0)},
                                         {"type": "text", "text": SCENE_0_PROMPT}]},
            {"role": "assistant", "content": [{"type": "text", "text": SCENE_0_ANSWER}]}])
        messages.append({"role": "user", "content": SUM})
        (self.tmp / "more.json").write_text(json.dumps({"messages": messages}), encoding="utf-8")
        self.assertEqual(self.answer("--messages", self.tmp / "chat.json")["image_tokens"], 50)
        self.assertEqual(self.answer("--messages", self.tmp / "more.json", "--device", "cpu")["text"],
                         self.entered(terminal, SUM))

    # Keys and signals.

    def test_up_arrow_repeats_the_last_line(self):
        terminal = self.chat()
        self.entered(terminal, SUM)
        self.entered(terminal, "/clear")
        terminal.type(UP + UP)
        terminal.until(re.escape(SUM))
        terminal.type("\r")
        self.assertEqual(terminal.until(PROMPT), "\n" + SUM_ANSWER)
        self.leave(terminal)
        self.assertEqual((self.tmp / "vireo/history").stat().st_mode & 0o777, 0o600)
        later = self.chat()
        later.type(UP)
        later.until(re.escape(SUM))
        later.type("\r")
        self.assertEqual(later.until(PROMPT), "\n" + SUM_ANSWER)

    def test_ctrl_c_stops_an_answer(self):
        terminal = self.chat(*ENDLESS, device="reference")
        for question, letters in (SUM, "5{20}"), ("Spell MOUSE backwards.", r"([^.])\1{19}"), (SUM, r"([^.])\1{19}"):
            terminal.type(question + "\r")
            terminal.until(letters)
            terminal.type(CTRL_C)
            terminal.until(r"\^C\nstopped")
            terminal.until(PROMPT)
        messages = self.saved(terminal)
        self.assertEqual([m["role"] for m in messages], ["user", "assistant"] * 3)
        self.assertRegex(messages[1]["content"][0]["text"], r"\A5{20,3000}\Z")
        self.leave(terminal)

    def test_ctrl_c_stops_the_look_at_a_picture(self):
        picture = self.tmp / "large.png"
        picture.write_bytes(clips.png(1024, 1024, bytes(3 << 20)))
        terminal = self.chat("--max-pixels", "none", device="reference")
        self.entered(terminal, f"/image {picture}")
        terminal.type(SCENE_0_PROMPT + "\r")
        terminal.until(r"vision \[")
        terminal.type(CTRL_C)
        terminal.until("stopped")
        terminal.until(PROMPT)
        self.entered(terminal, "/clear")
        self.assertEqual(self.entered(terminal, SUM), SUM_ANSWER)
        self.leave(terminal)

    def test_ctrl_c_drops_what_is_being_typed(self):
        terminal = self.chat()
        terminal.type("Spell" + CTRL_C)
        terminal.until(r"Spell\^C")
        terminal.until(PROMPT)
        terminal.type('"""Spell\r')
        terminal.until(MORE)
        terminal.type("MOUSE" + CTRL_C)
        terminal.until(r"MOUSE\^C")
        terminal.until(PROMPT)
        self.assertEqual(self.entered(terminal, SUM), SUM_ANSWER)
        self.assertEqual(len(self.saved(terminal)), 2)
        self.leave(terminal)

    def test_ctrl_z_and_back(self):
        bash = shutil.which("bash")
        if not bash:
            self.skipTest("no bash")
        with Terminal([bash, "--norc", "--noprofile", "--noediting", "-i"], self.environment(PS1="$ ")) as terminal:
            terminal.until(r"\$ ")
            terminal.type(" ".join(self.command()) + "\r")
            terminal.until(PROMPT)
            terminal.type("What is" + CTRL_Z)
            terminal.until("Stopped")
            terminal.until(r"\$ ")
            terminal.type("fg\r")
            terminal.until("> What is")
            terminal.type(SUM[len("What is"):] + "\r")
            terminal.until(PROMPT)
            self.assertIn(SUM + "\n" + SUM_ANSWER + "\n", terminal.screen)
            terminal.type(CTRL_D)
            terminal.until(r"\$ ")

    def test_sigterm_ends_it(self):
        waiting = self.chat()
        waiting.process.send_signal(signal.SIGTERM)
        self.assertEqual(waiting.exit_code(), 143)
        answering = self.chat(*ENDLESS, device="reference")
        answering.type(SUM + "\r")
        answering.until("5{20}")
        answering.process.send_signal(signal.SIGTERM)
        self.assertEqual(answering.exit_code(), 143)

    # Without a terminal.

    def test_lines_from_a_pipe(self):
        text = f"{SUM}\n/clear\n/image {SCENE_0}\n{SCENE_0_PROMPT}\n"
        result = subprocess.run(self.command(), input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=self.environment(), encoding="utf-8", timeout=60)
        self.assertEqual((result.returncode, result.stdout), (0, f"{SUM_ANSWER}\n{SCENE_0_ANSWER}\n"), result.stderr)
        self.assertFalse(os.path.exists(self.tmp / "vireo"))


if __name__ == "__main__":
    unittest.main()
