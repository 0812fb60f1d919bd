"""Writes items back where they are unchanged, and logs each write, so that it can be undone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from watcher.aws.model import WireItem
from watcher.aws.tables import Condition, Description, Written
from watcher.clock import Clock
from watcher.errors import StreamError, UsageError
from watcher.files import append_lines, replacing
from watcher.pull.call_pool import CallPool
from watcher.records.record import image_of, wire_item
from watcher.time_machine.item_keys import Identity, identity
from watcher.time_machine.limits import LIMITS, TimeMachineLimits
from watcher.time_machine.table import TableHandle
from watcher.time_machine.undo_plan import BROKEN, CHANGED, Image, UndoStep, is_same, units

_NULL: Final = msgspec.Raw(b"null")
_HEAD: Final = b'{"line":"undo"'
_HEAD_BYTES: Final = 16 * 1024
_EVER: Final = datetime.max.replace(tzinfo=UTC)


class RunHeader(msgspec.Struct, tag_field="line", tag="undo"):
    """The first line of the plan, and of each run."""

    table: str
    """The table's ARN."""
    identity: str
    """The table's id, which changes where it is deleted and made anew."""
    made: datetime
    start: datetime | None = None
    """The first second to undo; None where another undo is taken back."""
    until: datetime | None = None
    """The last second to undo."""
    like: str = ""
    """The table that this one is to be equal to, where it is a copy to repair."""


class PlannedStep(msgspec.Struct, tag_field="line", tag="step"):
    """An item to put back, or one that is left alone as a conflict."""

    key: msgspec.Raw
    before: msgspec.Raw = _NULL
    left: msgspec.Raw = _NULL
    now: msgspec.Raw = _NULL
    changes: int = 1
    conflict: str = ""

    @classmethod
    def of(cls, step: UndoStep) -> PlannedStep:
        """Returns the line of a step."""
        before, left, now = map(_raw, (step.before, step.after, step.now))
        return cls(msgspec.Raw(step.key), before, left, now, step.changes, step.conflict)

    def step(self) -> UndoStep:
        """Returns the step of this line."""
        before, left, now = map(entry_image, (self.before, self.left, self.now))
        return UndoStep(bytes(self.key), before, left, now, self.changes, conflict=self.conflict)


class WriteEntry(msgspec.Struct, tag_field="line", tag="write"):
    """A write that is about to be tried."""

    number: int
    key: msgspec.Raw
    old: msgspec.Raw = _NULL
    new: msgspec.Raw = _NULL
    at: datetime | None = None
    """The time by this machine's clock; None in logs of former versions."""


class WriteResult(msgspec.Struct, tag_field="line", tag="result"):
    """The outcome of a write; one without it was under way when its run was killed."""

    number: int
    outcome: Literal["restored", "conflict"]
    found: msgspec.Raw = _NULL
    """The item that a write replaced for a moment, where only the write found a conflict."""
    at: datetime | None = None
    """The time of the answer; None in logs of former versions."""


Line = RunHeader | PlannedStep | WriteEntry | WriteResult
_line: Final = msgspec.json.Decoder(Line)
_encode: Final = msgspec.json.Encoder().encode


def save_plan(path: Path, header: RunHeader, steps: Iterable[UndoStep]) -> None:
    """Writes a plan to a new file, whole or not at all, readable by its owner alone.

    Raises UsageError for a file that is there already, or can't be written.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    lines: Iterator[Line] = chain([header], map(PlannedStep.of, steps))
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))  # the name is ours from here on
        with replacing(path, aside) as file:
            file.write(b"".join(_encode(each) + b"\n" for each in lines))
    except FileExistsError:
        raise UsageError("it already exists; choose another name", "to", str(path)) from None
    except OSError as error:
        raise UsageError(f"can't write: {error.strerror}", "to", str(path)) from None


class UndoLog:
    """A plan's file, to note what is written; a run adds to an earlier one's lines.

    Only one process at a time has it open. Raises UsageError for another table's, or a file that
    can't be written.
    """

    def __init__(self, path: Path, table: Description, clock: Clock) -> None:
        self._clock = clock
        try:
            self._file = append_lines(os.fspath(path))
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            text = "it is in use: another process applies it"
            raise UsageError(text, "apply", str(path)) from None
        except OSError as error:
            raise UsageError(f"can't write: {error.strerror}", "apply", str(path)) from None
        self.earlier = list(read_log(path, "apply"))
        """The lines of the plan, and of earlier runs."""
        for head in self.earlier:
            if isinstance(head, RunHeader) and head.identity != table.identity:
                self._file.close()
                raise UsageError(f"it belongs to {head.table}", "apply", str(path))
        self._number = max(
            (each.number for each in self.earlier if isinstance(each, WriteEntry)), default=0
        )
        self._write([RunHeader(table.arn, table.identity, self._now())])

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def log_writes(self, steps: Iterable[tuple[UndoStep, Image]]) -> list[int]:
        """Logs writes before they are tried, each with the item as it is; returns their numbers.

        The lines are on disk when it returns.
        """
        entries = []
        at = self._now()
        for step, now in steps:
            self._number += 1
            key = msgspec.Raw(step.key)
            entries.append(WriteEntry(self._number, key, _raw(now), _raw(step.before), at))
        self._write(entries)
        return [entry.number for entry in entries]

    def log_result(self, number: int, is_restored: bool, found: Image) -> None:
        """Logs the outcome of a write."""
        outcome: Literal["restored", "conflict"] = "restored" if is_restored else "conflict"
        self._write([WriteResult(number, outcome, _raw(found), self._now())])

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.time(), UTC)

    def _write(self, entries: Iterable[Line]) -> None:
        self._file.write(b"".join(_encode(each) + b"\n" for each in entries))
        os.fsync(self._file.fileno())


class _Write:
    """A logged write, and the span of time in which the stream stamped its change."""

    def __init__(
        self,
        entry: WriteEntry,
        began: datetime,
        result: WriteResult | None,
        limits: TimeMachineLimits,
    ) -> None:
        self._clock_error = limits.clock_error
        self.old, self.new = entry_image(entry.old), entry_image(entry.new)
        self.is_sure = result is not None and entry.at is not None
        """True where the write was made, at a known time; else its run may have been killed."""
        self.first = entry.at or began
        self.last = _EVER
        if entry.at is not None:
            end = result.at if result is not None and result.at is not None else None
            self.last = (end or entry.at + limits.retried_for) + limits.clock_error

    def is_before(self, stamp: datetime) -> bool:
        """Returns True where the write's change has an older stamp than this one."""
        return stamp > self.last

    def is_change(self, old: Image, new: Image, stamp: datetime) -> bool:
        """Returns True where a change may be this write's."""
        # The service stamps whole seconds, DynamoDB Local whole minutes.
        coarse = timedelta(seconds=1 if stamp.second else 60)
        if not self.first - coarse - self._clock_error <= stamp <= self.last:
            return False
        return is_same(old, self.old) and is_same(new, self.new)


class LoggedWrites:
    """The writes of undo logs, to tell their changes from other people's.

    Each write made one change: an equal one that somebody makes later is not taken for it.
    """

    def __init__(
        self, paths: Iterable[Path], identity: str, *, limits: TimeMachineLimits = LIMITS
    ) -> None:
        self._limits = limits
        self._by_item: dict[Identity, list[_Write]] = {}
        for path in paths:
            logged = list(read_log(path))
            if any(isinstance(each, RunHeader) and each.identity == identity for each in logged):
                self._add(logged)
        for writes in self._by_item.values():
            writes.sort(key=lambda each: each.first)

    def _add(self, logged: list[Line]) -> None:
        results = {each.number: each for each in logged if isinstance(each, WriteResult)}
        writes = {each.number: each for each in possible_writes(logged)}
        began = datetime.fromtimestamp(0, UTC)
        for each in logged:
            if isinstance(each, RunHeader):
                began = each.made
            elif isinstance(each, WriteEntry) and each.number in writes:
                write = _Write(each, began, results.get(each.number), self._limits)
                self._by_item.setdefault(entry_item(each), []).append(write)

    def earliest_needed(self, start: datetime) -> datetime:
        """Returns the time to read changes from, so that those from `start` on can be recognized.

        A write made shortly before `start` could else be taken for an equal change after it.
        """
        near = (
            # Stamps are no older than their minute.
            each.first.replace(second=0, microsecond=0)
            for writes in self._by_item.values()
            for each in writes
            if start <= each.last < _EVER
        )
        return min(near, default=start)

    def claim(self, item: Identity, old: Image, new: Image, stamp: datetime | None) -> bool:
        """Returns True where an undo made this change, and counts that write as found.

        Ask about an item's changes in their order.
        """
        writes = self._by_item.get(item)
        if not writes or stamp is None:
            return False
        for number, write in enumerate(writes):
            if write.is_change(old, new, stamp):
                del writes[: number + 1]
                return True
            # The stream has an undo's writes of an item in the order of the log.
            if write.is_sure and not write.is_before(stamp):
                return False
        return False


def logs_in(folder: Path) -> Iterator[Path]:
    """Finds the undo logs of a folder, of any table, by their first lines."""
    for path in sorted(folder.glob("*.jsonl")):
        with suppress(OSError):  # somebody else's, which we may not read
            if path.is_file():
                with open(path, "rb") as file:
                    # The first may be torn: the header of the next run stands below it.
                    first, second = (file.readline(_HEAD_BYTES) for _ in range(2))
                if first.startswith(_HEAD) or (_begins_log(first) and second.startswith(_HEAD)):
                    yield path


def _begins_log(text: bytes) -> bool:
    """Returns True for a whole or torn first line of a log."""
    text = text.rstrip(b"\n")
    return text.startswith(_HEAD) or bool(text and _HEAD.startswith(text))


def read_log(path: Path, option: str = "revert") -> Iterator[Line]:
    """Yields a file's lines, without those that a crash has torn. Raises UsageError."""
    try:
        with open(path, "rb") as file:
            has_begun = False
            for number, text in enumerate(file, 1):
                try:
                    yield _line.decode(text)
                    has_begun = True
                except msgspec.DecodeError:
                    if not has_begun and not (number == 1 and _begins_log(text)):
                        raise UsageError("it is not an undo plan", option, str(path)) from None
    except OSError as error:
        raise UsageError(f"can't read: {error.strerror}", option, str(path)) from None


def restored_items(logged: Iterable[Line]) -> set[Identity]:
    """Returns the items that were surely put back."""
    logged = list(logged)
    results = (each for each in logged if isinstance(each, WriteResult))
    done = {each.number for each in results if each.outcome == "restored"}
    entries = (each for each in logged if isinstance(each, WriteEntry))
    return {entry_item(each) for each in entries if each.number in done}


def writes_under_way(logged: Iterable[Line]) -> list[WriteEntry]:
    """Returns the writes that were under way when their run was killed."""
    logged = list(logged)
    ended = {each.number for each in logged if isinstance(each, WriteResult)}
    return [each for each in logged if isinstance(each, WriteEntry) and each.number not in ended]


def possible_writes(logged: Iterable[Line]) -> list[WriteEntry]:
    """Returns the writes that were made, or may have been when the run was killed."""
    logged = list(logged)
    results = (each for each in logged if isinstance(each, WriteResult))
    not_made = {each.number for each in results if each.outcome == "conflict"}
    return [each for each in logged if isinstance(each, WriteEntry) and each.number not in not_made]


def entry_item(entry: WriteEntry) -> Identity:
    """Returns the item that an entry is about."""
    return identity(entry.key)


def entry_image(raw: msgspec.Raw) -> Image:
    """Returns an image of a log's line."""
    text = bytes(raw)
    return None if text == b"null" else text


def _raw(text: Image) -> msgspec.Raw:
    return _NULL if text is None else msgspec.Raw(text)


# A condition may have 300 operators (one for each attribute, and the AND between), and 4 KB.
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
_MAX_ATTRIBUTES: Final = 150
_MAX_BYTES: Final = 4096
_AND: Final = " AND "


def unchanged_condition(
    expected: WireItem | None, key: WireItem, other: WireItem | None
) -> Condition:
    """Returns the condition that an item is as `expected` (in botocore's form), or absent for None.

    The attributes that differ from the `other` item, which is about to be written, come first:
    where not all of them fit, a repeated write must not pass for the first one.
    """
    if expected is None:
        name = next(iter(key))
        return Condition("attribute_not_exists(#0)", {"#0": name}, {})
    size = 0
    clauses: list[str] = []
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    for name in _in_turn(expected, key, other or {}):
        number = f"{len(clauses):x}"
        is_there = name in expected
        clause = f"#{number} = :{number}" if is_there else f"attribute_not_exists(#{number})"
        size += len(clause) + len(_AND)
        if len(clauses) == _MAX_ATTRIBUTES or size > _MAX_BYTES:
            break
        clauses.append(clause)
        names[f"#{number}"] = name
        if is_there:
            values[f":{number}"] = expected[name]
    if not clauses:  # nothing but its key
        return Condition("attribute_exists(#0)", {"#0": next(iter(key))}, {})
    return Condition(_AND.join(clauses), names, values)


def _in_turn(expected: WireItem, key: WireItem, other: WireItem) -> Iterator[str]:
    """Yields the attributes to compare, those that differ first; the key needs no comparison."""
    names = [name for name in dict.fromkeys([*expected, *other]) if name not in key]
    yield from (name for name in names if expected.get(name) != other.get(name))
    yield from (name for name in names if expected.get(name) == other.get(name))


class Outcome(Enum):
    """The result for one item."""

    RESTORED = "restored"
    CONFLICT = "conflict"
    ALREADY = "already as it was"


class StepResult(NamedTuple):
    """A step, and its outcome."""

    step: UndoStep
    outcome: Outcome


class _WriteResult(NamedTuple):
    outcome: Outcome
    units: float
    found: Image = None
    """The item that the write replaced, and that was put back at once."""


class WriteBack:
    """Puts items back into one table, at most `rate` write capacity units a second.

    An item is read, compared whole, logged, and written under a condition that compares as much of
    it as DynamoDB allows. The replaced item in the answer is compared whole once more: a change
    that came in between (in an attribute that had no room in the condition) is put back at once.
    """

    def __init__(
        self, table: TableHandle, log: UndoLog, rate: float, *, limits: TimeMachineLimits = LIMITS
    ) -> None:
        self._limits = limits
        self._tables = table.tables
        self._name = table.name
        self._clock = table.clock
        self._log = log
        self._rate = rate

    def run(self, steps: Iterable[UndoStep], *, force: bool = False) -> Iterator[StepResult]:
        """Puts the items back; `force` also those that were changed when it reads them.

        Raises StreamError, once all writes before it are logged and yielded.
        """
        calls = CallPool(most=self._limits.write_threads)
        try:
            for batch in self._batches(steps):
                began = self._clock.monotonic()
                reads = calls.start([partial(self._current, step) for step in batch])
                found = [each.result() for each in reads]
                outcomes = {
                    id(step): _outcome_before_write(step, now, force)
                    for step, now in zip(batch, found, strict=True)
                }
                to_write = [
                    (step, now)
                    for step, now in zip(batch, found, strict=True)
                    if outcomes[id(step)] is None
                ]
                numbers = self._log.log_writes(to_write) if to_write else []
                used = 0.0
                failed: StreamError | None = None
                writes = calls.start([partial(self._try, each) for each in to_write])
                for (step, _), number, written in zip(to_write, numbers, writes, strict=True):
                    tried = written.result()
                    if isinstance(tried, StreamError):
                        failed = failed or tried
                        batch.remove(step)
                        continue
                    self._log.log_result(number, tried.outcome is Outcome.RESTORED, tried.found)
                    outcomes[id(step)] = tried.outcome
                    used += tried.units
                for step in batch:
                    yield StepResult(step, outcomes[id(step)] or Outcome.CONFLICT)
                if failed is not None:
                    raise failed
                self._pause(began, used)
        except KeyboardInterrupt:
            calls.close(wait=False)  # the log has the writes that are under way
            raise
        finally:
            calls.close()

    def _batches(self, steps: Iterable[UndoStep]) -> Iterator[list[UndoStep]]:
        """Splits the steps so that a batch costs no more than a second's units."""
        batch: list[UndoStep] = []
        cost = 0
        for step in steps:
            more = max(units(step.before), units(step.after))
            if batch and (len(batch) == self._limits.writes_at_once or cost + more > self._rate):
                yield batch
                batch, cost = [], 0
            batch.append(step)
            cost += more
        if batch:
            yield batch

    def _pause(self, began: float, used: float) -> None:
        seconds_left = began + used / self._rate - self._clock.monotonic()
        if seconds_left > 0:
            self._clock.sleep(seconds_left)

    def _current(self, step: UndoStep) -> Image:
        return _image(self._tables.get(self._name, wire_item(step.key)))

    def _try(self, write: tuple[UndoStep, Image]) -> _WriteResult | StreamError:
        """Returns a failure instead of raising it, so that the writes beside it are logged."""
        try:
            return self._write(write)
        except StreamError as error:
            return error

    def _write(self, write: tuple[UndoStep, Image]) -> _WriteResult:
        step, now = write
        written = self._swap(step.key, now, step.before)
        if written is None:
            # Our own first attempt, whose answer was lost, may have succeeded before this one.
            if is_same(self._current(step), step.before):
                return _WriteResult(Outcome.RESTORED, 1.0)
            step.conflict = step.conflict or CHANGED
            return _WriteResult(Outcome.CONFLICT, 1.0)
        replaced = _image(written.old)
        if is_same(replaced, now) or is_same(replaced, step.before):
            return _WriteResult(Outcome.RESTORED, written.units)
        again = self._swap(step.key, step.before, replaced)
        step.conflict = step.conflict or CHANGED
        cost = written.units + (again.units if again else 1.0)
        return _WriteResult(Outcome.CONFLICT, cost, replaced)

    def _swap(self, key_json: bytes, old: Image, new: Image) -> Written | None:
        """Replaces an item by another; None where the table has neither of them."""
        key = wire_item(key_json)
        expected = None if old is None else wire_item(old)
        if new is None:
            return self._tables.delete(self._name, key, unchanged_condition(expected, key, None))
        item = wire_item(new)
        return self._tables.put(self._name, item, unchanged_condition(expected, key, item))


def _outcome_before_write(step: UndoStep, now: Image, force: bool) -> Outcome | None:
    """Returns the outcome of an item that is not written; None for one to write."""
    if is_same(now, step.before):
        return Outcome.ALREADY
    if step.conflict == BROKEN:
        return Outcome.CONFLICT
    if force:
        return None
    if not is_same(now, step.after):
        step.conflict = step.conflict or CHANGED
    return Outcome.CONFLICT if step.conflict else None


def _image(item: WireItem | None) -> Image:
    return None if item is None else image_of(item)
