"""Reads a file of records: lines of `--print-json`, dead letters, and what other tools write.

Those are a Lambda function's event, the answers of GetRecords, and records one after another or
in an array, in one line or in several.
"""

from __future__ import annotations

import codecs
import gzip
import logging
import re
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any, Final

import msgspec

from watcher.aws.json_text import read
from watcher.errors import UsageError
from watcher.records.record import Record
from watcher.times import parse_written_time

logger = logging.getLogger("watcher")

_GZIP = b"\x1f\x8b"  # its first bytes, whatever a file is called
_WRONG_FILE = 10
"""A file without a record among so many lines is no file of records."""
_NO_FILE = (
    "give a file on this machine: dead letters, or lines of --print-json (count, history and "
    "report also read a folder of archive)"
)
_REMEMBERED = 20_000  # more than the batches of two Lambda functions hold


class _Line(msgspec.Struct):
    """A dead letter; of a bare record, as `--print-json` writes it, every field is empty."""

    record: msgspec.Raw = msgspec.Raw()
    shard_id: str = ""
    stream: str = ""
    handler: str = ""
    eventSourceARN: str = ""  # the stream, in a Lambda function's event
    Records: list[msgspec.Raw] | None = None
    """The records of such an event, or of an answer of GetRecords."""


_line = msgspec.json.Decoder(_Line)

# Of the record itself: an attribute of this name holds an object, and a text escapes the quotes.
_TIME: Final = re.compile(
    rb'("ApproximateCreationDateTime"\s*:\s*)(?:"([^"\\]*)"|(-?[0-9][0-9.eE+-]*))'
)
_OPENING: Final = b"{\n", b"[\n", b"{\r\n", b"[\r\n"
_MILLISECONDS_FROM: Final = 1e11  # seconds until the year 5138, or milliseconds from 1973 on
_MICROSECONDS_FROM: Final = 1e14
_NANOSECONDS_FROM: Final = 1e17


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
            is_none = "://" in name or isinstance(error, IsADirectoryError)
            reason = _NO_FILE if is_none else error.strerror
            raise UsageError(f"can't read {name}: {reason}") from None
        yield file


class RecordLines:
    """Iterates over a file's records, in its order; one that several handlers failed on comes once.

    Iterating raises UsageError for a file that begins with something else than records.
    """

    def __init__(self, file: Iterable[bytes]) -> None:
        self._file = file
        self._before = b""
        # The handler that failed on a record first, of the latest records.
        self._first: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        self.records = 0
        self.filtered = 0
        """Records that the reader filtered out, counted by the reader itself."""
        self.unreadable = 0

    def __iter__(self) -> Iterator[Record]:
        return self._records_in(self._texts())

    def _records_in(self, texts: Iterable[tuple[int, bytes | msgspec.Raw]]) -> Iterator[Record]:
        """Yields the records of texts, each with the number of the line in which it begins."""
        for number, text in texts:
            try:
                letter = read(_line, text)
                if letter.Records is not None:
                    yield from self._records_in((number, each) for each in letter.Records)
                    continue
                stream = letter.stream or letter.eventSourceARN
                raw = bytes(letter.record) or bytes(text)
                record = _record(raw, letter.shard_id, stream)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                self._leave_out(number, error)
                continue
            name = (stream, letter.shard_id, record.sequence_number)
            is_first = self._first.setdefault(name, letter.handler) == letter.handler
            self._first.move_to_end(name)
            if len(self._first) > _REMEMBERED:
                self._first.popitem(last=False)
            if is_first and raw != self._before:
                self.records += 1
                yield record
            self._before = raw

    def _texts(self) -> Iterator[tuple[int, bytes]]:
        for number, document in _documents(enumerate(self._file, 1)):
            text = document.strip()
            if number == 1:
                text = text.removeprefix(codecs.BOM_UTF8)
            if text.startswith(b"["):
                text = b'{"Records":%b}' % text
            if text:
                yield number, text

    def _leave_out(self, number: int, error: Exception) -> None:
        self.unreadable += 1
        if self.unreadable > _WRONG_FILE and not self.records:
            raise UsageError("these are neither dead letters nor lines of --print-json") from None
        logger.warning(f"line {number} is neither a dead letter nor a record: {error}")


def _documents(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Joins the lines of JSON that is indented; any other line is yielded as it is.

    Such JSON begins with a line that ends in a bracket, and goes on until a line without an indent,
    which is its last one if it closes a bracket.
    """
    parts: list[bytes] = []
    begin = 0
    for number, line in lines:
        if parts:
            if line[:1].isspace():
                parts.append(line)
                continue
            is_last = line.startswith((b"}", b"]"))
            yield begin, b"".join([*parts, line] if is_last else parts)
            parts = []
            if is_last:
                continue
        if line.endswith(_OPENING):
            parts, begin = [line], number
        else:
            yield number, line
    if parts:
        yield begin, b"".join(parts)


def _record(raw: bytes, shard_id: str, stream: str) -> Record:
    """Makes a record, its time in seconds. Raises msgspec.DecodeError."""
    try:
        record = Record.from_json(raw, shard_id, stream)
        if (record.wire.dynamodb.ApproximateCreationDateTime or 0) < _MILLISECONDS_FROM:
            return record
    except msgspec.DecodeError:  # a time as text, or no record
        if (in_seconds := _with_seconds(raw)) == raw:
            raise
    else:
        in_seconds = _with_seconds(raw)
    return Record.from_json(in_seconds, shard_id, stream)


def _with_seconds(raw: bytes) -> bytes:
    """Returns a record with its time as the service writes it; as it is where it has none.

    Raises msgspec.DecodeError for a number that is none.
    """
    found = _TIME.search(raw)
    if found is None:
        return raw
    name, text, number = found.groups()
    try:
        if text is None:
            seconds = msgspec.json.decode(number, type=float)
            sizes = (1.0, _MICROSECONDS_FROM, _NANOSECONDS_FROM)
            seconds /= 1000 ** sum(seconds >= size for size in sizes)
        elif (time := parse_written_time(text.decode())) is not None:
            seconds = time.timestamp()
        else:
            return raw
    except (UsageError, ValueError, OverflowError):
        return raw
    return raw[: found.start()] + name + msgspec.json.encode(seconds) + raw[found.end() :]


def read_records(lines: RecordLines, name: str) -> Iterator[Record]:
    """Yields a file's records. Raises UsageError with the file's name."""
    try:
        yield from lines
    except (OSError, EOFError) as error:  # a network disk's error, or half a .gz
        raise UsageError(f"can't read {name}: {error}") from None
    except UsageError as error:
        raise UsageError(f"can't read {name}: {error}") from None
