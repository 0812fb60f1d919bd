"""Chooses the changes to undo, plans for each item its image before them, and saves the plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from watcher.aws.json_text import mend
from watcher.errors import StreamError, UsageError
from watcher.files import replacing
from watcher.records.diff import OldAndNew, differing
from watcher.records.filters import record_filter, words
from watcher.records.record import Record
from watcher.records.wire import FilterPattern, KeyValues
from watcher.streams.start_times import Moment
from watcher.time_machine.item_keys import Identity, identity, images_of
from watcher.time_machine.sources import past_time


class ChangeFilter:
    """Filters changes by their time, and by what `watch` filters records by. Raises UsageError."""

    def __init__(
        self,
        start: Moment | None,
        until: Moment | None = None,
        *,
        key: KeyValues | None = None,
        filters: Iterable[FilterPattern] | None = None,
        only: str | Iterable[str] | None = None,
        grep: str | None = None,
    ) -> None:
        if start is None:
            raise UsageError("give the time of the first change to undo", "start")
        self.start = past_time(start, "start")
        self.until = None if until is None else past_time(until, "until")
        if self.until is not None and self.until < self.start:
            raise UsageError("it is before the beginning", "until", str(until))
        self.key = key
        self._matches_record = record_filter(filters, key, only, grep)
        self.undoes_ttl = "ttl" in words(only)
        """True where removals by time-to-live are undone, too."""

    def matches(self, record: Record, now: datetime) -> bool:
        """Returns True for a matching change; `now` ends an open interval."""
        created = record.wire.dynamodb.ApproximateCreationDateTime
        if created is None:
            raise StreamError("the changes have no times to choose them by")
        return self.start.timestamp() <= created < (self.until or now).timestamp() + 1 and (
            self._matches_record is None or self._matches_record(record)
        )


_shallow: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
Image: TypeAlias = msgspec.Raw
"""An item as the wire's JSON, or NOTHING."""
NOTHING: Final = msgspec.Raw(b"null")

BETWEEN = "another change lies between those that are to be undone"
CHANGED = "it was changed since"
BROKEN = "half a character in it can't be written back"
AS_BEFORE = "it is as it was before"
EXPIRED = "it expired; --only ttl puts that back"
NOT_WRITTEN = "the plan has not written it"


class UndoStep(msgspec.Struct, tag_field="line", tag="step"):
    """One item that the changes touched, as its plan's file has it."""

    key: msgspec.Raw
    """The item's key, as the wire's JSON."""
    before: Image = NOTHING
    """The item before the first change to undo."""
    now: Image = NOTHING
    """The item when the changes were read."""
    changes: int = 1
    seen: str = ""
    """The number of the item's newest change by then; "" where no stream told of it."""
    conflict: str = ""
    """The reason to leave the item alone; "" where there is none."""
    kept: str = ""
    """The reason why nothing is to be done; "" where there is none."""

    @property
    def units(self) -> int:
        """About the write units that it costs: by the larger of the old and the new item."""
        return max(-(-len(bytes(each)) // 1024) for each in (self.before, self.now))


class UndoPlanner:
    """Collects the steps of an undo from records; those of one item come in their order.

    `is_selected` tells the changes to undo; `spares_ttl` leaves out removals by time-to-live.
    """

    def __init__(self, is_selected: Callable[[Record], bool], *, spares_ttl: bool = True) -> None:
        self._is_selected = is_selected
        self._spares_ttl = spares_ttl
        self._steps: dict[Identity, UndoStep] = {}
        self._expired: dict[Identity, UndoStep] = {}
        self._others: set[Identity] = set()
        """The items that somebody else has changed since."""

    def on_record(self, record: Record) -> None:
        """Takes in a change. Raises StreamError where it has no images."""
        change = record.wire.dynamodb
        item = identity(change.Keys)
        step = self._steps.get(item)
        is_selected = self._is_selected(record)
        if is_selected and self._spares_ttl and record.expired_by_ttl:
            is_selected = False
            self._expired[item] = UndoStep(_copied(change.Keys), kept=EXPIRED)
        if step is None and not is_selected:
            return
        old, new = images(record)
        if step is None:
            step = self._steps[item] = UndoStep(_copied(change.Keys), old)
            step.conflict = BROKEN if _has_half_pairs(record) else ""
        elif is_selected:
            if item in self._others and not is_same(step.before, old):
                step.conflict = step.conflict or BETWEEN
            self._others.discard(item)
            step.changes += 1
        else:
            self._others.add(item)
        step.now, step.seen = new, record.sequence_number

    def steps(self) -> list[UndoStep]:
        """Returns a step for each item, in the order in which the items were touched.

        The reason stands in those that are left alone.
        """
        for item, step in self._steps.items():
            if is_same(step.now, step.before):
                step.kept = AS_BEFORE
            elif item in self._others:  # whatever the item looks like now
                step.conflict = step.conflict or CHANGED
        expired = (step for item, step in self._expired.items() if item not in self._steps)
        return [*self._steps.values(), *expired]


def images(record: Record) -> tuple[Image, Image]:
    """Returns the item before and after a change. Raises StreamError where one is missing."""
    old, new = images_of(record, "undo changes")
    return msgspec.Raw(old or NOTHING), msgspec.Raw(new or NOTHING)


def _copied(keys: msgspec.Raw) -> msgspec.Raw:
    return msgspec.Raw(bytes(keys))  # without the page that it is a part of


def is_same(one: Image, other: Image) -> bool:
    """Returns True where two items are equal for DynamoDB, compared whole."""
    return one == other or not item_differences(one, other)


def item_differences(old: Image, new: Image) -> dict[str, OldAndNew]:
    """Returns old and new value of each attribute that differs."""
    return differing(_shallow.decode(old) or {}, _shallow.decode(new) or {})


def _has_half_pairs(record: Record) -> bool:
    raw = bytes(record.raw)
    return b"\\ud" in raw.lower() and mend(raw) != raw


class RunHeader(msgspec.Struct, tag_field="line", tag="undo"):
    """The first line of a plan's file."""

    table: str
    """The table's ARN."""
    identity: str
    """The table's id, which changes where it is deleted and made anew."""
    made: datetime
    """The service's time when the changes were read."""
    start: datetime | None = None
    """The first second to undo."""
    until: datetime | None = None
    """The last second to undo."""
    reverts: str = ""
    """The path of the plan whose writes are taken back; "" where changes are undone."""
    turn: int = 0
    """The number of times that those were taken back, with this one."""


_line: Final = msgspec.json.Decoder(RunHeader | UndoStep)
_encode: Final = msgspec.json.Encoder().encode


def save_plan(path: Path, header: RunHeader, steps: Iterable[UndoStep]) -> None:
    """Writes a plan to a new file, whole or not at all, readable by its owner alone.

    Raises UsageError for a file that is there already, or can't be written.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))  # the name is ours from here on
    except FileExistsError:
        raise UsageError("it already exists; choose another name", "plan_file", str(path)) from None
    except OSError as error:
        raise UsageError(f"can't write: {error.strerror}", "plan_file", str(path)) from None
    _write(path, header, steps)


def _write(path: Path, header: RunHeader, steps: Iterable[UndoStep]) -> None:
    try:
        with replacing(path, path.with_name(f".{path.name}.{os.getpid()}")) as file:
            file.writelines(_encode(each) + b"\n" for each in (header, *steps))
    except OSError as error:
        raise UsageError(f"can't write: {error.strerror}", "plan_file", str(path)) from None


def note_reverted(path: Path, turn: int) -> None:
    """Notes in a plan's file that its writes are taken back: it is new again. Raises UsageError."""
    header, steps = read_plan(path)
    if header.turn < turn:
        _write(path, msgspec.structs.replace(header, turn=turn), steps)


def read_plan(path: Path) -> tuple[RunHeader, list[UndoStep]]:
    """Reads a plan's file. Raises UsageError for another file, or one that can't be read."""
    try:
        with open(path, "rb") as file:
            header, *lines = map(_line.decode, file)
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, ValueError):
        raise UsageError(f"{path} is not an undo plan") from None
    steps = [each for each in lines if isinstance(each, UndoStep)]
    if not isinstance(header, RunHeader) or len(steps) < len(lines):
        raise UsageError(f"{path} is not an undo plan")
    return header, steps
