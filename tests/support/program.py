"""The real command line as a child process: started, waited for by what it prints, ended."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO
from unittest import mock

from tests.support.eventually import PATIENCE, eventually
from watcher.cli import main
from watcher.formatting import style

ROOT = Path(__file__).parents[2]


class Killed(ABC):
    """A process in a group of its own, which does not outlive its `with` block."""

    process: subprocess.Popen[Any]

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

    def __init__(self, *arguments: str, env: Mapping[str, str], cwd: Path | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "watcher", *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._news: queue.Queue[None] = queue.Queue()
        self._threads = [
            threading.Thread(target=self._collect, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.out), (self.process.stderr, self.err))
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
        eventually(lambda: not self._has_pending(number), seconds=timeout)

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

    @property
    def status(self) -> int | None:
        """The exit status, once it has ended."""
        return self.process.poll()

    def release(self) -> None:
        """Wait for the end, and close the pipes."""
        self.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


_OF_PYTHON = ("PYTHON", "LC_", "LANG", "TZ")


@dataclass
class Ran:
    """What a command line has printed, and the exit status."""

    status: int
    out: list[str]
    err: list[str]

    @property
    def printed(self) -> str:
        """What stands on standard output, as one text."""
        return "\n".join(self.out)

    @property
    def said(self) -> str:
        """What stands on standard error, as one text."""
        return "\n".join(self.err)


def run(*arguments: str, env: Mapping[str, str], cwd: Path | None = None) -> Ran:
    """A command line from its start to its end, in this process, which it leaves as it was."""
    if any(name.startswith(_OF_PYTHON) for name in env):  # as it starts, it looks at these
        with Program(*arguments, env=env, cwd=cwd) as program:
            return Ran(program.wait(), program.out, program.err)
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as err,
    ):
        status, said = _run_here(arguments, {**os.environ, **env}, cwd, out, err)
        out.seek(0)
        return Ran(status, out.read().split("\n")[:-1], said.splitlines())


def told(status: int, *arguments: str) -> Ran:
    """A command line that ends with this status, in the environment as it is."""
    done = run(*arguments, env={})
    assert done.status == status, done.err
    return done


def numbers(program: Program | Ran) -> list[str]:
    """The sequence numbers that --print-json has printed, in whole lines: a kill may tear one."""
    whole = [line for line in program.out if line.endswith("}")]
    return [json.loads(line)["dynamodb"]["SequenceNumber"] for line in whole]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_on_a_terminal(*arguments: str, env: Mapping[str, str]) -> tuple[int, str, str]:
    """The same on a terminal; the exit status, what is written to it, and the errors."""
    screen = _Terminal()
    environment = {**os.environ, "TERM": "xterm", **env}
    status, err = _run_here(arguments, environment, None, screen, _Terminal())
    return status, screen.getvalue(), err


def _run_here(
    arguments: Sequence[str], env: Mapping[str, str], cwd: Path | None, out: TextIO, err: TextIO
) -> tuple[int, str]:
    modules, path = set(sys.modules), list(sys.path)
    with (
        mock.patch.dict(os.environ, env, clear=True),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        style.restored(),
        log_restored(),
    ):
        try:
            status = main(list(arguments))
        except SystemExit as error:
            status = int(error.code or 0)
        finally:
            sys.path[:] = path
            for name in set(sys.modules) - modules:
                if _is_users(sys.modules[name]):
                    del sys.modules[name]
        err.seek(0)
        return status, err.read()


def _is_users(module: object) -> bool:
    """Whether it is a handler's or a function's, which the next one may have otherwise."""
    file = getattr(module, "__file__", None)
    return bool(file) and not str(file).startswith((str(ROOT), sys.prefix, sys.base_prefix))


@contextlib.contextmanager
def log_restored() -> Iterator[None]:
    """A command that is run in this process sets the log up for itself."""
    logger = logging.getLogger("watcher")
    before = logger.level, logger.handlers[:], logger.propagate
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    try:
        yield
    finally:
        sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
        level, logger.handlers[:], logger.propagate = before
        logger.setLevel(level)
