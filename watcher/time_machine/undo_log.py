"""What an undo writes down before it writes to the table, so that it can itself be taken back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

import msgspec

from watcher.aws.tables import Description
from watcher.clock import Clock
from watcher.errors import UsageError
from watcher.files import append_lines
from watcher.time_machine.item_keys import Identity, identity
from watcher.time_machine.undo_plan import Image, UndoStep, is_same

_NULL: Final = msgspec.Raw(b"null")
_HEAD: Final = b'{"line":"undo"'
_HEAD_BYTES: Final = 16 * 1024
# Of a write whose run was killed: so long at most it may have been tried again.
_TRIED: Final = timedelta(minutes=10)
# By so much this machine's clock may be wrong.
_WRONG: Final = timedelta(seconds=10)
_EVER: Final = datetime.max.replace(tzinfo=UTC)


class Head(msgspec.Struct, tag_field="line", tag="undo"):
    """The first line of a run."""

    table: str
    """The table's ARN."""
    identity: str
    """Another one where the table was deleted and made anew."""
    made: datetime


class Entry(msgspec.Struct, tag_field="line", tag="write"):
    """A write that is about to be tried."""

    number: int
    key: msgspec.Raw
    old: msgspec.Raw = _NULL
    new: msgspec.Raw = _NULL
    at: datetime | None = None
    """When, by this machine; None in logs of former versions."""


class Result(msgspec.Struct, tag_field="line", tag="result"):
    """What came of it; where there is none, the run was killed in between."""

    number: int
    outcome: Literal["restored", "conflict"]
    found: msgspec.Raw = _NULL
    """With a conflict that was found only by the write: what it has replaced for a moment."""
    at: datetime | None = None
    """When it was done; None in logs of former versions."""


Line = Head | Entry | Result
_line: Final = msgspec.json.Decoder(Line)
_encode: Final = msgspec.json.Encoder().encode


class UndoLog:
    """A file of lines of JSON, for its owner alone; a run goes on with what is there.

    Raises UsageError for a file that is another table's, or can't be written.
    """

    def __init__(self, path: Path, table: Description, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        earlier = list(lines(path)) if path.exists() else []
        for head in earlier:
            if isinstance(head, Head) and head.identity != table.identity:
                raise UsageError(f"it is a log of {head.table}; choose another", "log", str(path))
        self._number = max((each.number for each in earlier if isinstance(each, Entry)), default=0)
        try:
            self._file = append_lines(os.fspath(path))
            self._write([Head(table.arn, table.identity, self._now())])
        except OSError as error:
            raise UsageError(f"can't write: {error.strerror}", "log", str(path)) from None

    def close(self) -> None:
        """No more is written."""
        self._file.close()

    def begin(self, steps: Iterable[tuple[UndoStep, Image]]) -> list[int]:
        """Note what is about to be written: each step and what the item is now. On disk after."""
        entries = []
        at = self._now()
        for step, now in steps:
            self._number += 1
            key = msgspec.Raw(step.key)
            entries.append(Entry(self._number, key, _raw(now), _raw(step.before), at))
        self._write(entries)
        return [entry.number for entry in entries]

    def end(self, number: int, is_restored: bool, found: Image) -> None:
        """Note what came of it."""
        outcome: Literal["restored", "conflict"] = "restored" if is_restored else "conflict"
        self._write([Result(number, outcome, _raw(found), self._now())])

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.time(), UTC)

    def _write(self, entries: Iterable[Line]) -> None:
        self._file.write(b"".join(_encode(each) + b"\n" for each in entries))
        os.fsync(self._file.fileno())


class _Write:
    """A write that a log tells of, and in which time the stream's change of it was made."""

    def __init__(self, entry: Entry, began: datetime, result: Result | None) -> None:
        self.old, self.new = image(entry.old), image(entry.new)
        self.is_sure = result is not None and entry.at is not None
        """Whether it was made, and when; else the run may have been killed before."""
        self.first = entry.at or began
        self.last = _EVER
        if entry.at is not None:
            end = result.at if result is not None and result.at is not None else None
            self.last = (end or entry.at + _TRIED) + _WRONG

    def is_before(self, stamp: datetime) -> bool:
        """Whether its change has an older stamp than this one."""
        return stamp > self.last

    def is_change(self, old: Image, new: Image, stamp: datetime) -> bool:
        """Whether a change may be this write."""
        # The service's stamps are whole seconds, DynamoDB Local's are whole minutes.
        coarse = timedelta(seconds=1 if stamp.second else 60)
        if not self.first - coarse - _WRONG <= stamp <= self.last:
            return False
        return is_same(old, self.old) and is_same(new, self.new)


class LoggedWrites:
    """What undo logs say was written, to tell those changes from others'.

    A write has made one change: an equal one that somebody else makes later is not taken for it.
    """

    def __init__(self, paths: Iterable[Path], identity: str) -> None:
        self._of: dict[Identity, list[_Write]] = {}
        for path in paths:
            logged = list(lines(path))
            if any(isinstance(each, Head) and each.identity == identity for each in logged):
                self._add(logged)
        for of_item in self._of.values():
            of_item.sort(key=lambda each: each.first)

    def _add(self, logged: list[Line]) -> None:
        results = {each.number: each for each in logged if isinstance(each, Result)}
        writes = {each.number: each for each in made(logged)}
        began = datetime.fromtimestamp(0, UTC)
        for each in logged:
            if isinstance(each, Head):
                began = each.made
            elif isinstance(each, Entry) and each.number in writes:
                write = _Write(each, began, results.get(each.number))
                self._of.setdefault(key_of(each), []).append(write)

    def reaching(self, start: datetime) -> datetime:
        """From when on changes are to be read, for those from `start` on to be told apart.

        A write that was made shortly before could else be found in an equal change after it.
        """
        near = (
            # Stamps are no older than their minute.
            each.first.replace(second=0, microsecond=0)
            for of_item in self._of.values()
            for each in of_item
            if start <= each.last < _EVER
        )
        return min(near, default=start)

    def made(self, item: Identity, old: Image, new: Image, stamp: datetime | None) -> bool:
        """Whether an undo made this change of an item, whose changes are asked in their order."""
        of_item = self._of.get(item)
        if not of_item or stamp is None:
            return False
        for number, write in enumerate(of_item):
            if write.is_change(old, new, stamp):
                del of_item[: number + 1]
                return True
            # What an undo has done to an item comes in the stream in the same order.
            if write.is_sure and not write.is_before(stamp):
                return False
        return False


def logs_in(folder: Path) -> Iterator[Path]:
    """The undo logs of a folder, by their first lines: of any table."""
    for path in sorted(folder.glob("*.jsonl")):
        with suppress(OSError):  # another's, which says nothing to us
            if path.is_file():
                with open(path, "rb") as file:
                    # The first may be torn: the next run's stands below it.
                    first, second = (file.readline(_HEAD_BYTES) for _ in range(2))
                if first.startswith(_HEAD) or (_begins_log(first) and second.startswith(_HEAD)):
                    yield path


def _begins_log(text: bytes) -> bool:
    """Whether a log begins with this, whole or not."""
    text = text.rstrip(b"\n")
    return text.startswith(_HEAD) or bool(text and _HEAD.startswith(text))


def lines(path: Path) -> Iterator[Line]:
    """A log's lines; one that a crash has torn is left out. Raises UsageError."""
    try:
        with open(path, "rb") as file:
            has_begun = False
            for number, text in enumerate(file, 1):
                try:
                    yield _line.decode(text)
                    has_begun = True
                except msgspec.DecodeError:
                    if not has_begun and not (number == 1 and _begins_log(text)):
                        raise UsageError("it is no undo log", "log", str(path)) from None
    except OSError as error:
        raise UsageError(f"can't read: {error.strerror}", "log", str(path)) from None


def made(logged: Iterable[Line]) -> list[Entry]:
    """The writes that were made, or may have been when the run was killed."""
    logged = list(logged)
    results = (each for each in logged if isinstance(each, Result))
    not_made = {each.number for each in results if each.outcome == "conflict"}
    return [each for each in logged if isinstance(each, Entry) and each.number not in not_made]


def key_of(entry: Entry) -> Identity:
    """Which item it is."""
    return identity(entry.key)


def image(raw: msgspec.Raw) -> Image:
    """An item of a line."""
    text = bytes(raw)
    return None if text == b"null" else text


def _raw(text: Image) -> msgspec.Raw:
    return _NULL if text is None else msgspec.Raw(text)
