"""The program of a soak, and what it has delivered: judged as it comes, nothing of it is kept."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_NUMBER = re.compile(rb'"pk":{"S":"(\w+)"},"v":{"N":"(\d+)"}')


class Account:
    """Every change of an item has its number, so that what is missing or repeated shows."""

    def __init__(self) -> None:
        self.last: Counter[str] = Counter()
        """The last change of each item."""
        self.faults = Counter({"missing, or out of order": 0, "repeated": 0})

    def take(self, key: str, number: int) -> None:
        """This change of an item was delivered."""
        if number <= self.last[key]:
            self.faults["repeated"] += 1
            return
        self.faults["missing, or out of order"] += number - self.last[key] - 1
        self.last[key] = number

    def take_line(self, line: bytes) -> None:
        """As `--print-json` prints it; a change that removes follows the image that it removes."""
        new = b'"NewImage"' in line
        match = _NUMBER.search(line, line.find(b"NewImage" if new else b"OldImage"))
        assert match is not None, line
        self.take(match[1].decode(), int(match[2]) + (not new))


class Watch:
    """`python -m watcher` over this environment, until it is ended."""

    def __init__(self, words: list[str], environment: Mapping[str, str], log: Path) -> None:
        self.account = Account()
        self.log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "watcher", *words],
                env={**os.environ, **environment, "PYTHONPATH": str(_ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as pipe:
            for line in pipe:
                self.account.take_line(line)

    def complaints(self) -> list[str]:
        """What it may not say."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if "DATA LOSS: " in line or line.startswith("Traceback")]

    def end(self) -> int:
        """Ask it to end, as a service manager does; the exit status."""
        self.process.terminate()
        status = self.process.wait(30)
        self._reading.join(30)
        return status

    def clean_up(self) -> None:
        """Leave nothing running, whatever happened."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reading.join(30)
