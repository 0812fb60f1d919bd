"""The real command line as a child process: started, waited for by what it prints, ended."""

from __future__ import annotations

import contextlib
import os
import pty
import queue
import re
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import prefork

PATIENCE = 150.0
"""Seconds until what does not come is given up: a net, which a full machine must not reach."""


class Killed(ABC):
    """A process in a group of its own, which does not outlive its `with` block."""

    process: subprocess.Popen[Any] | prefork.Forked

    @abstractmethod
    def release(self) -> None:
        """Wait for its end, and give back what it held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.release()


class Program(Killed):
    """`python -m watcher …`, its lines of stdout and stderr collected as they come."""

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str],
        cwd: Path | None = None,
        output: str | None = None,
    ) -> None:
        self._output = open(output, "w") if output else None
        self.process = prefork.start(
            "watcher", arguments, env={**os.environ, **env}, cwd=cwd, stdout=self._output
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._news: queue.Queue[None] = queue.Queue()
        self._threads = [
            threading.Thread(target=self._collect, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.out), (self.process.stderr, self.err))
            if pair[0] is not None
        ]
        for thread in self._threads:
            thread.start()

    def _collect(self, pipe: object, lines: list[str]) -> None:
        for line in pipe:  # type: ignore[attr-defined]
            lines.append(line.rstrip("\n"))
            self._news.put(None)
        self._news.put(None)

    def wait_for(self, condition: Callable[[], bool], timeout: float = PATIENCE) -> None:
        """Wait until it holds; asked again at every line that is printed."""
        end = time.monotonic() + timeout
        while not condition():
            left = end - time.monotonic()
            over = self.process.poll() is not None and not any(t.is_alive() for t in self._threads)
            if (left <= 0 or over) and not condition():
                when = "before its end" if over else f"in {timeout} s"
                raise AssertionError(f"not {when}; stderr: " + "\n".join(self.err[-20:]))
            try:
                self._news.get(timeout=min(left, 1.0))
            except queue.Empty:
                continue

    def wait_for_status(self, text: str, timeout: float = PATIENCE) -> None:
        """Wait until a line on stderr has this text."""
        self.wait_for(lambda: any(text in line for line in self.err), timeout)

    def wait_for_lines(self, count: int, timeout: float = PATIENCE) -> None:
        """Wait until so many lines stand on stdout."""
        self.wait_for(lambda: len(self.out) >= count, timeout)

    def tell(self, number: int, timeout: float = PATIENCE) -> None:
        """Send a signal, and wait until it does not wait for the program any more."""
        self.process.send_signal(number)
        end = time.monotonic() + timeout
        while self._has_pending(number):
            assert time.monotonic() < end
            time.sleep(0.01)

    def _has_pending(self, number: int) -> bool:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        masks = re.findall(r"^(?:ShdPnd|SigPnd):\s*(\w+)$", status, re.MULTILINE)
        return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)

    def end(self, number: int = signal.SIGTERM, timeout: float = PATIENCE) -> int:
        """Send a signal, and wait for the end."""
        self.process.send_signal(number)
        return self.wait(timeout)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for the end; the exit status."""
        status = self.process.wait(timeout)
        for thread in self._threads:
            thread.join(timeout)
        return status

    def release(self) -> None:
        """Wait for the end, and close the pipes."""
        self.wait()
        for pipe in (self.process.stdout, self.process.stderr, self._output):
            if pipe is not None:
                pipe.close()


def run(
    *arguments: str, env: Mapping[str, str], cwd: Path | None = None, timeout: float = PATIENCE
) -> Program:
    """The program from its start to its end."""
    with Program(*arguments, env=env, cwd=cwd) as program:
        program.wait(timeout)
    return program


def run_side_by_side(
    *each: Sequence[str], env: Mapping[str, str], timeout: float = PATIENCE
) -> list[Program]:
    """Programs that wait most of the time, from their starts to their ends."""
    with contextlib.ExitStack() as stack:
        programs = [stack.enter_context(Program(*words, env=env)) for words in each]
        for program in programs:
            program.wait(timeout)
    return programs


def run_on_a_terminal(*arguments: str, env: Mapping[str, str]) -> str:
    """What the program writes to a pseudo-terminal, from its start to its end."""
    leader, follower = pty.openpty()
    written = bytearray()

    def collect() -> None:
        with contextlib.suppress(OSError):  # how Linux says that the other end is closed
            while data := os.read(leader, 4096):
                written.extend(data)

    reader = threading.Thread(target=collect)
    reader.start()
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    try:
        program = prefork.start(
            "watcher",
            arguments,
            env={**inherited, "TERM": "xterm", **env},
            stdout=follower,
            stderr=subprocess.DEVNULL,
        )
        assert program.wait(PATIENCE) == 0
    finally:
        os.close(follower)
        reader.join(10)
        os.close(leader)
    return written.decode().replace("\r\n", "\n")  # the terminal's own doing
