"""Sorts more lines than memory holds, by sorted runs in temporary files."""

from __future__ import annotations

import heapq
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import IO, Final

from watcher.files import temporary_folder

MEMORY_BYTES: Final = 8 * 1024 * 1024
"""About what memory holds of the lines."""
_LINE_BYTES: Final = 100  # about: what Python takes for each beside its text
# Files read beside each other: so many, each with its buffer and a line.
_RUNS: Final = 32


class SortedLines:
    """Takes lines, each with the `\\n` at its end, and iterates over them in the order of bytes.

    Raises OSError where the disk is full.
    """

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0
        # Of each level, fewer than `_RUNS`; so many of one make up one of the next.
        self._levels: list[list[IO[bytes]]] = []
        self._files = ExitStack()
        weakref.finalize(self, self._files.close)

    def add(self, line: bytes) -> None:
        """Takes in a line."""
        self._lines.append(line)
        self._size += len(line) + _LINE_BYTES
        if self._size > MEMORY_BYTES:
            self._lines.sort()
            self._write(0, self._lines)
            self._lines, self._size = [], 0

    def __iter__(self) -> Iterator[bytes]:
        self._lines.sort()
        if not self._levels:
            return iter(self._lines)
        return heapq.merge(
            self._lines, *(_from_start(run) for each in self._levels for run in each)
        )

    def _write(self, level: int, lines: Iterable[bytes]) -> None:
        run = self._files.enter_context(tempfile.TemporaryFile(dir=temporary_folder()))
        run.writelines(lines)
        if level == len(self._levels):
            self._levels.append([])
        runs = self._levels[level]
        runs.append(run)
        if len(runs) == _RUNS:
            self._write(level + 1, heapq.merge(*map(_from_start, runs)))
            for each in runs:
                each.close()
            runs.clear()


def _from_start(run: IO[bytes]) -> IO[bytes]:
    run.seek(0)
    return run
