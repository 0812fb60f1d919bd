"""Chooses the changes to undo, plans for each item its image before them, and saves the plan."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from watcher.aws.config import AwsConfig
from watcher.aws.json_text import mend
from watcher.errors import StreamError, UsageError
from watcher.files import replace, replacing
from watcher.formatting.text import grouped, printable
from watcher.records.diff import OldAndNew, differing
from watcher.records.filters import record_filter, words
from watcher.records.record import Record
from watcher.records.wire import FilterPattern, KeyValues
from watcher.streams.start_times import Moment
from watcher.time_machine.callers import APART, Callers, Certainty, Trail
from watcher.time_machine.item_keys import Identity, identity, images_of
from watcher.time_machine.sources import Sources, past_time, records_until

logger = logging.getLogger("watcher")

# Changes so close to the first and the last matching one may have had the same call.
_AROUND = timedelta(seconds=2 * APART)


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
        by: CallerFilter | None = None,
    ) -> None:
        if start is None:
            raise UsageError("give the time of the first change to undo", "start")
        self.start = past_time(start, "start")
        self.until = None if until is None else past_time(until, "until")
        if self.until is not None and self.until < self.start:
            raise UsageError("it is before the beginning", "until", str(until))
        self.key = key
        self.by = by
        self._matches_record = record_filter(filters, key, only, grep)
        self.undoes_ttl = "ttl" in words(only)
        """True where removals by time-to-live are undone, too."""

    def matcher(self, sources: Sources, now: datetime) -> Callable[[Record], bool]:
        """Returns a function that is True for a matching change; `now` ends an open interval.

        With a filter by callers it reads the changes of these sources, and the trail.
        """
        first = self.start.timestamp()
        end = (self.until or now).timestamp() + 1
        matches_record = self._matches_record
        by_caller = None if self.by is None else self.by.matcher(sources, self.start, self.until)

        def matches(record: Record) -> bool:
            created = record.wire.dynamodb.ApproximateCreationDateTime
            if created is None:
                raise StreamError("the changes have no times to choose them by")
            return (
                first <= created < end
                and (matches_record is None or matches_record(record))
                and (by_caller is None or by_caller(record))
            )

        return matches


class CallerFilter:
    """Filters the changes that are certainly by callers of these names: `role/release-112`.

    Raises UsageError where there are no names.
    """

    def __init__(self, names: Iterable[str], trail: Trail) -> None:
        self.names = frozenset([names] if isinstance(names, str) else names)
        if not self.names:
            raise UsageError("name a caller: role/NAME, user/NAME", "only_by")
        self._trail = trail
        self._seen: Counter[str] = Counter()
        self.matched = 0
        """The number of changes that are certainly by them."""
        self.uncertain = 0
        """The number of changes that may be by them, or by others."""

    def matcher(
        self, sources: Sources, start: datetime, until: datetime | None
    ) -> Callable[[Record], bool]:
        """Reads changes and trail; returns a function that is True for a matching change."""
        callers = Callers(sources.table_arn)
        first = sources.again()
        first.open(start - _AROUND)
        for record in records_until(first.records(), until and until + _AROUND):
            callers.add_change(record)
        reading = self._trail.read(callers)

        def matches(record: Record) -> bool:
            answer = callers.answer(callers.change_key(record), reading.incomplete)
            self._seen[answer.names] += 1
            named = {each.name for each in answer.callers}
            named |= {f"{each.account}:{each.name}" for each in answer.callers}
            if self.names.isdisjoint(named):
                return False
            if answer.certainty is Certainty.CERTAIN:
                self.matched += 1
                return True
            self.uncertain += 1
            return False

        return matches

    def log(self) -> None:
        """Logs how many changes were uncertain, and where none matched who the callers are."""
        names = " or ".join(map(printable, sorted(self.names)))
        if self.uncertain:
            logger.warning(
                f"{grouped(self.uncertain, 'change')} left alone: by {names}, or by others "
                "(history --who says why)"
            )
        if not self.matched:
            callers = "; ".join(f"{count:,} {name}" for name, count in self._seen.most_common(10))
            found = f"the changes are by: {callers}" if callers else "there are no other changes"
            logger.warning(f"No change is certainly by {names}; {found}")


def caller_filter(
    names: str | Iterable[str] | None, who: str | None, connection: AwsConfig
) -> CallerFilter | None:
    """Returns the filter by callers; None without one. Raises UsageError for half of one."""
    if names is None and who is None:
        return None
    if who is None:
        raise UsageError("it needs CloudTrail's logs: --who PLACE", "only_by")
    if names is None:
        raise UsageError("say whose changes to undo: --only-by role/NAME", "who", who)
    return CallerFilter(names, Trail(who, connection))


_shallow: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
Image = bytes | None
"""An item as the wire's JSON; None where there is none."""

BETWEEN = "another change lies between those that are to be undone"
CHANGED = "it was changed since"
PUT_BACK = "it was put back, and changed since"
BROKEN = "half a character in it can't be written back"
AS_BEFORE = "it is as it was before"
BY_ITSELF = "the changes themselves have put it back"
EXPIRED = "it expired; --only ttl puts that back"
NOT_WRITTEN = "the plan has not written it"


class UndoStep(msgspec.Struct):
    """One item that the changes touched."""

    key: bytes
    """The item's key, as the wire's JSON."""
    before: Image
    """The item before the first change to undo."""
    now: Image
    """The item when the changes were read."""
    changes: int = 1
    seen: str = ""
    """The number of the item's newest change by then; "" where no stream told of it."""
    conflict: str = ""
    """The reason to leave the item alone, unless it is forced; "" where there is none."""
    kept: str = ""
    """The reason why nothing is to be done; "" where there is none."""


class _Touched(UndoStep):
    """An item while its changes are read."""

    after: Image = None
    """The item after the last change to undo."""
    has_others: bool = False
    """True where somebody else has changed it since."""
    is_back: bool = False
    """True where they put it back first."""


class UndoPlanner:
    """Collects the steps of an undo from records; those of one item come in their order.

    `is_selected` tells the changes to undo; `spares_ttl` leaves out removals by time-to-live.
    """

    def __init__(self, is_selected: Callable[[Record], bool], *, spares_ttl: bool = True) -> None:
        self._is_selected = is_selected
        self._spares_ttl = spares_ttl
        self._steps: dict[Identity, _Touched] = {}
        self._expired: dict[Identity, bytes] = {}  # their keys

    def on_record(self, record: Record) -> None:
        """Takes in a change. Raises StreamError where it has no images."""
        change = record.wire.dynamodb
        item = identity(change.Keys)
        step = self._steps.get(item)
        is_selected = self._is_selected(record)
        if is_selected and self._spares_ttl and record.expired_by_ttl:
            is_selected = False
            self._expired[item] = bytes(change.Keys)
        if step is None and not is_selected:
            return
        old, new = images_of(record, "undo changes")
        if step is None:
            self._steps[item] = step = _Touched(bytes(change.Keys), old, new, after=new)
            step.conflict = BROKEN if _has_half_pairs(record) else ""
        else:
            _go_on(step, is_selected, old, new)
        step.seen = record.sequence_number

    def steps(self) -> list[UndoStep]:
        """Returns a step for each item, in the order in which the items were touched.

        The reason stands in those that are left alone.
        """
        for step in self._steps.values():
            _judge(step)
        expired = (
            UndoStep(key, None, None, kept=EXPIRED)
            for item, key in self._expired.items()
            if item not in self._steps
        )
        return [*self._steps.values(), *expired]


def _go_on(step: _Touched, is_selected: bool, old: Image, new: Image) -> None:
    """Takes in a further change of an item."""
    step.now = new
    if not is_selected:
        step.has_others = True
        step.is_back = step.is_back or is_same(new, step.before)
        return
    if step.has_others and not is_same(step.before, old):
        step.conflict = step.conflict or BETWEEN
    step.after, step.has_others, step.is_back = new, False, False
    step.changes += 1


def _judge(step: _Touched) -> None:
    """Sets the reason to leave an item alone, if there is one."""
    if is_same(step.now, step.before):
        step.kept = AS_BEFORE
    elif is_same(step.after, step.before):
        step.kept = BY_ITSELF
    elif step.has_others:  # whatever the item looks like now
        step.conflict = step.conflict or (PUT_BACK if step.is_back else CHANGED)


def is_same(one: Image, other: Image) -> bool:
    """Returns True where two items are equal for DynamoDB, compared whole."""
    if one is None or other is None or one == other:
        return one is other or one == other
    return not differing(_shallow.decode(one), _shallow.decode(other))


def item_differences(old: Image, new: Image) -> dict[str, OldAndNew]:
    """Returns old and new value of each attribute that differs."""
    before, after = (_shallow.decode(each) if each else {} for each in (old, new))
    return differing(before, after)


def units(image: Image) -> int:
    """Returns about how many write capacity units it takes to put an item, or to delete it."""
    return 1 if image is None else -(-len(image) // 1024)


def total_units(steps: Iterable[UndoStep]) -> int:
    """Returns the cost of all steps: a write costs by the larger of the old and the new item."""
    return sum(max(units(step.before), units(step.now)) for step in steps)


def _has_half_pairs(record: Record) -> bool:
    raw = bytes(record.raw)
    return b"\\ud" in raw.lower() and mend(raw) != raw


_NULL: Final = msgspec.Raw(b"null")


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
    like: str = ""
    """The table that this one is to be equal to, where it is a copy to repair."""
    reverts: str = ""
    """The path of the plan whose writes are taken back; "" where changes are undone."""
    turn: int = 0
    """The number of times that those were taken back, with this one."""


class PlannedStep(msgspec.Struct, tag_field="line", tag="step"):
    """An item to put back, or one that is left alone as a conflict."""

    key: msgspec.Raw
    before: msgspec.Raw = _NULL
    now: msgspec.Raw = _NULL
    changes: int = 1
    seen: str = ""
    conflict: str = ""

    @classmethod
    def of(cls, step: UndoStep) -> PlannedStep:
        """Returns the line of a step."""
        before, now = map(_raw, (step.before, step.now))
        return cls(msgspec.Raw(step.key), before, now, step.changes, step.seen, step.conflict)

    def step(self) -> UndoStep:
        """Returns the step of this line."""
        before, now = map(_image, (self.before, self.now))
        return UndoStep(bytes(self.key), before, now, self.changes, self.seen, self.conflict)


class Reverted(msgspec.Struct, tag_field="line", tag="reverted"):
    """A note behind the steps that their writes are being taken back, so the plan is new again."""

    turn: int


_line: Final = msgspec.json.Decoder(RunHeader | PlannedStep | Reverted)
_encode: Final = msgspec.json.Encoder().encode


class SavedPlan(NamedTuple):
    """The content of a plan's file."""

    header: RunHeader
    steps: list[UndoStep]
    reverted: int
    """The number of times that its writes were taken back."""


def save_plan(path: Path, header: RunHeader, steps: Iterable[UndoStep]) -> None:
    """Writes a plan to a new file, whole or not at all, readable by its owner alone.

    Raises UsageError for a file that is there already, or can't be written.
    """
    lines = chain([header], map(PlannedStep.of, steps))
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))  # the name is ours from here on
        with replacing(path, _aside(path)) as file:
            file.write(b"".join(_encode(each) + b"\n" for each in lines))
    except FileExistsError:
        raise UsageError("it already exists; choose another name", "plan_file", str(path)) from None
    except OSError as error:
        raise UsageError(f"can't write: {error.strerror}", "plan_file", str(path)) from None


def read_plan(path: Path, option: str) -> SavedPlan:
    """Reads a plan's file. Raises UsageError for another file, or one that can't be read."""
    try:
        with open(path, "rb") as file:
            header, *lines = map(_line.decode, file)
    except OSError as error:
        raise UsageError(f"can't read: {error.strerror}", option, str(path)) from None
    except (msgspec.DecodeError, ValueError):
        raise UsageError("it is not an undo plan", option, str(path)) from None
    if not isinstance(header, RunHeader):
        raise UsageError("it is not an undo plan", option, str(path))
    steps = [each.step() for each in lines if isinstance(each, PlannedStep)]
    turns = [each.turn for each in lines if isinstance(each, Reverted)]
    return SavedPlan(header, steps, max(turns, default=0))


def note_reverted(path: Path, turn: int) -> None:
    """Notes in a plan's file that its writes are taken back. Raises UsageError."""
    if read_plan(path, "apply").reverted < turn:
        note = _encode(Reverted(turn)) + b"\n"
        try:
            replace(path, path.read_bytes() + note, _aside(path))
        except OSError as error:
            raise UsageError(f"can't write: {error.strerror}", "apply", str(path)) from None


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def _image(raw: msgspec.Raw) -> Image:
    text = bytes(raw)
    return None if text == b"null" else text


def _raw(text: Image) -> msgspec.Raw:
    return _NULL if text is None else msgspec.Raw(text)
