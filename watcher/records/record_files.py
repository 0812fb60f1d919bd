"""Reads a file of records: lines of `--print-json`, or dead letters."""

from __future__ import annotations

import gzip
import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import msgspec

from watcher.aws.json_text import read
from watcher.errors import UsageError
from watcher.records.record import Record

logger = logging.getLogger("watcher")

_GZIP = b"\x1f\x8b"  # its first bytes, whatever a file is called
_WRONG_FILE = 10
"""A file without a record among so many lines is no file of records."""
_REMEMBERED = 20_000  # more than the batches of two Lambda functions hold


class _Line(msgspec.Struct):
    """A dead letter; of a bare record, as `--print-json` writes it, every field is empty."""

    record: msgspec.Raw = msgspec.Raw()
    shard_id: str = ""
    stream: str = ""
    handler: str = ""
    observer: str = ""  # the handler, in letters of version 0.1


_line = msgspec.json.Decoder(_Line)


@contextmanager
def open_lines(name: str) -> Iterator[IO[bytes]]:
    """Opens a file of lines, plain or compressed by gzip; `-` is stdin. Raises UsageError."""
    with ExitStack() as opened:
        try:
            file: Any = sys.stdin.buffer
            if name != "-":
                file = opened.enter_context(open(name, "rb"))
            if file.peek(2).startswith(_GZIP):
                file = opened.enter_context(gzip.open(file))
        except OSError as error:
            raise UsageError(f"can't read {name}: {error.strerror}") from None
        yield file


class RecordLines:
    """Iterates over a file's records, in its order; one that several handlers failed on comes once.

    Iterating raises UsageError for a file that begins with something else than records.
    """

    def __init__(
        self, file: Iterable[bytes], on_unreadable: Callable[[], object] | None = None
    ) -> None:
        """`on_unreadable` is called right after a line that is no record was taken."""
        self._file = file
        self._on_unreadable = on_unreadable
        self.records = 0
        self.filtered = 0
        """Records that the reader filtered out, counted by the reader itself."""
        self.unreadable = 0
        self.bytes = 0

    def __iter__(self) -> Iterator[Record]:
        before = b""
        # The handler that failed on a record first, of the latest records.
        first: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        for number, line in enumerate(self._file, 1):
            self.bytes += len(line)
            if not line.strip():
                continue
            try:
                letter = read(_line, line)
                raw = bytes(letter.record) or line.strip()
                record = Record.from_json(raw, letter.shard_id, letter.stream)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                self.unreadable += 1
                if self._on_unreadable is not None:
                    self._on_unreadable()
                if self.unreadable > _WRONG_FILE and not self.records:
                    raise UsageError(
                        "these are neither dead letters nor lines of --print-json"
                    ) from None
                logger.warning(f"line {number} is neither a dead letter nor a record: {error}")
                continue
            name = (letter.stream, letter.shard_id, record.sequence_number)
            handler = letter.handler or letter.observer
            is_first = first.setdefault(name, handler) == handler
            first.move_to_end(name)
            if len(first) > _REMEMBERED:
                first.popitem(last=False)
            if is_first and raw != before:
                self.records += 1
                yield record
            before = raw


def read_records(lines: RecordLines, name: str) -> Iterator[Record]:
    """Yields a file's records. Raises UsageError with the file's name."""
    try:
        yield from lines
    except (OSError, EOFError) as error:  # a network disk's error, or half a .gz
        raise UsageError(f"can't read {name}: {error}") from None
    except UsageError as error:
        raise UsageError(f"can't read {name}: {error}") from None
