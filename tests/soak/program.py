"""One run of `python -m watcher`: its changes are told as they come, nothing of them is kept."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from tests.soak.account import Run

_ROOT = Path(__file__).parents[2]
_NUMBER = re.compile(rb'"pk":{"S":"(\w+)"},"v":{"N":"(\d+)"}')
_KEYS = re.compile(rb'"Keys":{"pk":{"S":"(\w+)"}}')

Told = Callable[[Run, str, int], None]


def change_in(line: bytes) -> tuple[str, int] | None:
    """The item's name and the change's number; None for what a kill has cut off."""
    if not line.endswith(b"\n"):
        return None
    key = _KEYS.search(line)
    images = {name: _NUMBER.search(line, line.find(name)) for name in (b"NewImage", b"OldImage")}
    new = images[b"NewImage"] if b'"NewImage"' in line else None
    image = new or images[b"OldImage"]
    if key is None or image is None:
        return None
    # One that removes is the next after the image that it has removed.
    return key[1].decode(), int(image[2]) + (new is None)


class Watch:
    """A program that runs, and the run that it is."""

    def __init__(
        self, words: list[str], environment: Mapping[str, str], log: Path, told: Told
    ) -> None:
        self.run = Run()
        self.access_key = environment["AWS_ACCESS_KEY_ID"]
        self._told = told
        self.log = log
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "watcher", *words],
                env={**os.environ, **environment, "PYTHONPATH": str(_ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        self._reading = threading.Thread(target=self._read, args=(self.process.stdout,))
        self._reading.start()

    def _read(self, pipe: IO[bytes]) -> None:
        with pipe:
            for line in pipe:
                if (change := change_in(line)) is not None:
                    self._told(self.run, *change)

    def signal(self, number: int) -> None:
        """To the whole program, as a service manager would."""
        os.killpg(self.process.pid, number)

    def wait(self, seconds: float = 30.0) -> int:
        """Its exit status, once all that it has printed is told; it is killed if need be."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            return self.process.wait()
        finally:
            self._reading.join(seconds)

    def end(self) -> int:
        """Ask it to end, as a service manager does; the exit status."""
        self.process.terminate()
        return self.wait()
