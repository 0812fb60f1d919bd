"""A program on a pseudo-terminal of its own, and what a person would see there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import pyte

from tests.support.program import ROOT, Killed


class _Screen(pyte.Screen):
    """Keeps what is scrolled away, at half the price of pyte's own that does."""

    def __init__(self, columns: int, lines: int) -> None:
        self.scrolled: deque[Any] = deque(maxlen=10_000)
        super().__init__(columns, lines)

    def index(self) -> None:
        top, bottom = self.margins or (0, self.lines - 1)
        if self.cursor.y == bottom:
            self.scrolled.append(self.buffer[top])
        super().index()


class Terminal(Killed):
    """Runs a command with its input, output and errors on one terminal, which it controls."""

    def __init__(
        self, *command: str, env: Mapping[str, str], columns: int = 100, lines: int = 40
    ) -> None:
        self.screen = _Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._news = threading.Condition()
        self.written = bytearray()
        self._leader, follower = pty.openpty()
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(follower, termios.TIOCSWINSZ, size)
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT), **env},
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(follower)
        self._reading = True
        self._reader = threading.Thread(target=self._collect)
        self._reader.start()

    def _collect(self) -> None:
        with contextlib.suppress(OSError):  # how Linux says that the other end is closed
            while self._reading:
                if not select.select([self._leader], [], [], 0.1)[0]:
                    continue
                if not (data := os.read(self._leader, 65536)):
                    break
                with self._news:
                    self.written += data
                    self._stream.feed(data)
                    self._news.notify_all()

    @property
    def shown(self) -> list[str]:
        """Every line that stands on the terminal or has been scrolled away, from the first on."""
        scrolled = [
            "".join(line[column].data for column in range(self.screen.columns))
            for line in self.screen.scrolled
        ]
        return [line.rstrip() for line in [*scrolled, *self.screen.display] if line.strip()]

    def wait_for(self, condition: Callable[[], bool], timeout: float = 60.0) -> None:
        """Wait until it holds; asked again whenever something is written."""
        end = time.monotonic() + timeout
        with self._news:
            while not condition():
                left = end - time.monotonic()
                assert left > 0, "not in time; shown: " + "\n".join(self.shown[-20:])
                self._news.wait(min(left, 1.0))

    def press(self, keys: bytes) -> None:
        """Press keys; b"\\x03" is Ctrl-C."""
        os.write(self._leader, keys)

    def end(self, timeout: float = 60.0) -> int:
        """Wait for the program's end; its exit status."""
        status = self.process.wait(timeout)
        self._reader.join(timeout)
        return status

    def hang_up(self) -> None:
        """Take the terminal away, as a lost connection does; what is shown stays."""
        self._reading = False
        self._reader.join()
        os.close(self._leader)
        self._leader = -1

    def release(self) -> None:
        """Wait for the end, and close the terminal."""
        self.end()
        if self._leader >= 0:
            os.close(self._leader)
