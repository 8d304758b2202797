"""What the program tells of itself: the completions of three shells and the manual page, compared with --help."""
# SPDX-License-Identifier: Apache-2.0

import re
import shutil
import subprocess
import unittest

from program import ProgramTest, vireo

NAME = r"(?<![\w-])--?[a-z][a-z0-9-]*"


def printed(*args):
    result = vireo(*args)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return result.stdout


def commands():
    """The subcommands that --help lists."""
    listed = re.search(r"^subcommands:\n((?: .*\n)+)", printed("--help"), re.MULTILINE | re.IGNORECASE)
    return re.findall(r"^ {1,4}([a-z][a-z0-9-]*)\b", listed.group(1), re.MULTILINE)


def options(command):
    """The option names that its --help lists."""
    heads = re.findall(r"^  (-[^ ]*)", printed(command, "--help"), re.MULTILINE)
    return [name for head in heads for name in re.findall(NAME, head)]


class Completion(ProgramTest):
    def checked_by(self, program, *args, text):
        """Whether the program, where there is one, takes the text without a word."""
        if not shutil.which(program):
            return
        path = self.tmp / "text"
        path.write_text(text, encoding="utf-8")
        result = subprocess.run([program, *args, str(path)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, encoding="utf-8", timeout=60)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def completed(self, *words):
        """What bash offers for the last of the words."""
        script = printed("completion", "bash") + (
            'compopt() { echo "<$2>"; }\n'
            'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _vireo; printf "%s\\n" "${COMPREPLY[@]}"\n')
        result = subprocess.run(["bash", "-c", script, "bash", "vireo", *words], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, encoding="utf-8", timeout=60, check=True)
        return result.stdout.split()

    def test_bash_offers_every_command_and_option(self):
        self.checked_by("bash", "-n", text=printed("completion", "bash"))
        self.assertEqual(set(self.completed("")), {*commands(), "-h", "--help", "--version"})
        self.assertIn("completion", commands())
        for command in commands():
            with self.subTest(command=command):
                self.assertEqual(self.completed(command, "-"), options(command))

    def test_bash_completes_values(self):
        self.assertEqual(self.completed("ru"), ["run"])
        self.assertEqual(self.completed("run", "--chec"), ["--checkpoint"])
        self.assertEqual(self.completed("run", "--image", ""), ["<default>"])
        self.assertEqual(self.completed("inspect", ""), ["<default>"])
        self.assertEqual(self.completed("run", "--prompt", ""), [])
        self.assertEqual(self.completed("run", "--device", ""), ["auto", "cpu", "reference", "cuda"])
        self.assertEqual(self.completed("run", "--kernels", "8"), ["87"])
        self.assertEqual(self.completed("completion", "z"), ["zsh"])

    def test_zsh_names_every_command_and_option(self):
        text = printed("completion", "zsh")
        self.checked_by("zsh", "-n", text=text)
        for command in commands():
            with self.subTest(command=command):
                arguments = re.search(rf"^    {command}\) _arguments((?:.*\\\n)*.*) ;;$", text, re.MULTILINE)
                self.assertIsNotNone(arguments)
                self.assertEqual(re.findall(rf"'\*({NAME})\[", arguments.group(1)), options(command))

    def test_fish_names_every_command_and_option(self):
        text = printed("completion", "fish")
        self.checked_by("fish", "-n", text=text)
        for command in commands():
            with self.subTest(command=command):
                self.assertIn(f"complete -c vireo -n __fish_use_subcommand -a {command} -d ", text)
                lines = re.findall(rf"^complete -c vireo -n '__fish_seen_subcommand_from {command}'(.*)", text,
                                   re.MULTILINE)
                names = [("--" if kind == "l" else "-") + name
                         for line in lines for kind, name in re.findall(r" -([ls]) (\S+)", line.split(" -d ")[0])]
                self.assertEqual(names, options(command))

    def test_manual_names_every_command_and_option(self):
        text = printed("manual")
        self.checked_by("groff", "-man", "-ww", "-z", "-Tutf8", text=text)
        plain = text.replace("\\-", "-")
        for command in commands():
            with self.subTest(command=command):
                self.assertIn(f"\n.SS vireo {command}\n", plain)
                for name in options(command):
                    self.assertIn(f"\\fB{name}\\fR", plain)
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "MODEL OPTIONS", "ENVIRONMENT",
                        "EXAMPLES", "EXIT CODES"):
            self.assertIn(f"\n.SH {section}\n", plain)

    def test_unknown_shell_is_refused(self):
        self.assert_refused(vireo("completion", "tcsh"), 2, "tcsh", "zsh")


if __name__ == "__main__":
    unittest.main()
