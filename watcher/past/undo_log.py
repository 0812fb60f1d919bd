"""What an undo writes down before it writes to the table, so that it can itself be taken back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from watcher.errors import UsageError
from watcher.files import append_lines
from watcher.past.item_keys import Identity, identity
from watcher.past.steps import Image, Step, is_same
from watcher.service.tables import Description

_NULL: Final = msgspec.Raw(b"null")


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


class Result(msgspec.Struct, tag_field="line", tag="result"):
    """What came of it; where there is none, the run was killed in between."""

    number: int
    outcome: Literal["restored", "conflict"]
    found: msgspec.Raw = _NULL
    """With a conflict that was found only by the write: what it has replaced for a moment."""


Line = Head | Entry | Result
_line: Final = msgspec.json.Decoder(Line)
_encode: Final = msgspec.json.Encoder().encode


class UndoLog:
    """A file of lines of JSON, for its owner alone; a run goes on with what is there.

    Raises UsageError for a file that is another table's, or can't be written.
    """

    def __init__(self, path: Path, table: Description) -> None:
        self._path = path
        earlier = list(lines(path)) if path.exists() else []
        for head in earlier:
            if isinstance(head, Head) and head.identity != table.identity:
                raise UsageError(f"it is a log of {head.table}; choose another", "log", str(path))
        self._number = max((each.number for each in earlier if isinstance(each, Entry)), default=0)
        try:
            self._file = append_lines(os.fspath(path))
            self._write([Head(table.arn, table.identity, datetime.now(UTC))])
        except OSError as error:
            raise UsageError(f"can't write: {error.strerror}", "log", str(path)) from None

    def close(self) -> None:
        """No more is written."""
        self._file.close()

    def begin(self, steps: Iterable[tuple[Step, Image]]) -> list[int]:
        """Note what is about to be written: each step and what the item is now. On disk after."""
        entries = []
        for step, now in steps:
            self._number += 1
            key = msgspec.Raw(step.key)
            entries.append(Entry(self._number, key, _raw(now), _raw(step.before)))
        self._write(entries)
        return [entry.number for entry in entries]

    def end(self, number: int, is_restored: bool, found: Image) -> None:
        """Note what came of it."""
        outcome: Literal["restored", "conflict"] = "restored" if is_restored else "conflict"
        self._write([Result(number, outcome, _raw(found))])

    def _write(self, entries: Iterable[Line]) -> None:
        self._file.write(b"".join(_encode(each) + b"\n" for each in entries))
        os.fsync(self._file.fileno())


class Writes:
    """What undo logs say was written, to tell those changes from others'."""

    def __init__(self, paths: Iterable[Path], identity: str) -> None:
        self._of: dict[Identity, list[tuple[Image, Image]]] = {}
        self.found = 0
        """How many changes were told to be of them."""
        for path in paths:
            logged = list(lines(path))
            if any(isinstance(each, Head) and each.identity == identity for each in logged):
                for each in made(logged):
                    name = key_of(each)
                    self._of.setdefault(name, []).append((image(each.old), image(each.new)))

    def made(self, item: Identity, old: Image, new: Image) -> bool:
        """Whether a change of this item was made by an undo."""
        of_item = self._of.get(item, ())
        if not any(is_same(old, before) and is_same(new, after) for before, after in of_item):
            return False
        self.found += 1
        return True


def lines(path: Path) -> Iterator[Line]:
    """A log's lines; the last one may be torn. Raises UsageError."""
    try:
        with open(path, "rb") as file:
            for number, text in enumerate(file, 1):
                try:
                    yield _line.decode(text)
                except msgspec.DecodeError:
                    if number == 1:
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
