"""The program in a pseudo terminal, as someone sees it who types."""
# SPDX-License-Identifier: Apache-2.0

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

CTRL_C, CTRL_D, CTRL_Z, UP, BACKSPACE = "\x03", "\x04", "\x1a", "\x1b[A", "\x7f"

# The last one has only begun.
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\r|\x1b[\[()]?[0-9;?]*\Z")


def take_terminal():
    """In the child: its terminal sends it signals, as a login's does."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """Closed at the end of a with block; what is not waited for there is killed."""

    def __init__(self, command, env, timeout_s=60):
        self.timeout_s = timeout_s
        self.screen = ""  # everything shown, without escape sequences
        self.seen = 0  # how much of it has been looked at
        self.fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
        self.process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=env,
                                        start_new_session=True, preexec_fn=take_terminal)
        os.close(child)
        self.bytes = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.fd)

    def read(self, seconds):
        """Whether something more was shown."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            more = os.read(self.fd, 1 << 16)
        except OSError:  # what the kernel says when the last program has left the terminal
            more = b""
        self.bytes += more
        self.screen = ESCAPES.sub("", self.bytes.decode(errors="replace"))
        return bool(more)

    def until(self, pattern):
        """What is shown, from what was looked at before, up to the first match."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            match = re.compile(pattern).search(self.screen, self.seen)
            if match:
                shown = self.screen[self.seen:match.start()]
                self.seen = match.end()
                return shown
            if not self.read(max(0, deadline - time.monotonic())):
                raise AssertionError(f"waited for {pattern!r} in vain; the screen:\n{self.screen}")

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def exit_code(self):
        """Reads on until the program has ended."""
        while self.read(self.timeout_s):
            pass
        return self.process.wait(self.timeout_s)
