"""Chooses the changes to undo, and plans for each item that they touched its image before them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec

from watcher.aws.config import AwsConfig
from watcher.aws.json_text import mend
from watcher.aws.model import WireItem, WireValue
from watcher.errors import StreamError, UsageError
from watcher.formatting.text import grouped, printable
from watcher.records.diff import OldAndNew, differing
from watcher.records.filters import record_filter, words
from watcher.records.record import Record
from watcher.records.wire import FilterPattern, KeyValues, WireFilter, is_by_ttl
from watcher.streams.start_times import Moment
from watcher.time_machine.callers import APART, Callers, Certainty, Trail
from watcher.time_machine.item_keys import Identity, identity
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
        self._record_filter = partial(record_filter, filters, key, only, grep)
        self._record_filter()  # raises here for a wrong one
        self.undoes_ttl = "ttl" in words(only)
        """True where removals by time-to-live are undone, too."""

    def matcher(
        self, sources: Sources, now: datetime, is_ttl: WireFilter = is_by_ttl
    ) -> Callable[[Record], bool]:
        """Returns a function that is True for a matching change; `now` ends an open interval.

        With a filter by callers it reads the changes of these sources, and the trail.
        """
        first = self.start.timestamp()
        end = (self.until or now).timestamp() + 1
        matches_record = self._record_filter(is_ttl=is_ttl)
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
_any: Final = msgspec.json.Decoder()
Image = bytes | None
"""An item as the wire's JSON; None where there is none."""

BETWEEN = "another change lies between those that are to be undone"
CHANGED = "it was changed since"
PUT_BACK = "it was put back, and changed since"
AFTER_UNDO = "it was changed after an undo had put it back"
UNKNOWN = "a run was killed while it wrote this, and the stream does not tell the outcome"
BROKEN = "half a character in it can't be written back"
AS_BEFORE = "it is as it was before"
BY_ITSELF = "the changes themselves have put it back"
BY_UNDO = "an undo has put it back"
DONE = "this plan has put it back before"
EXPIRED = "it expired; --only ttl puts that back"
OWN = "only an undo wrote it: undo --revert takes that back"


class UndoStep(msgspec.Struct):
    """One item that the changes touched."""

    key: bytes
    """The item's key, as the wire's JSON."""
    before: Image
    """The item before the first change to undo."""
    after: Image
    """The item after the last change to undo."""
    now: Image
    """The item when the changes were read."""
    changes: int = 1
    is_back: bool = False
    """True where the item was as before for a while since, by itself or by an undo."""
    by_undo: bool = False
    """True where an undo put it back."""
    conflict: str = ""
    """The reason to leave the item alone, unless it is forced; "" where there is none."""
    kept: str = ""
    """The reason why nothing is to be done; "" where there is none."""


class _OwnWrites:
    """The items that an undo has written, and not taken back."""

    def __init__(self) -> None:
        self._first: dict[Identity, UndoStep] = {}
        self._selected: set[Identity] = set()

    def add(self, item: Identity, step: UndoStep, is_selected: bool) -> None:
        first = self._first.pop(item, step)
        if not is_same(step.now, first.before):
            first.after = first.now = step.now
            self._first[item] = first
        if is_selected:
            self._selected.add(item)

    def __contains__(self, item: Identity) -> bool:
        return item in self._first

    def selected(self) -> Iterator[tuple[Identity, UndoStep]]:
        """Yields the items whose changes were selected, too."""
        return (each for each in self._first.items() if each[0] in self._selected)


class UndoPlanner:
    """Collects the steps of an undo from records; those of one item come in their order.

    `is_selected` tells the changes to undo, which begin at `start`, `spared` those among them that
    are removals by time-to-live, and `claim` those that an earlier undo made.
    """

    def __init__(
        self,
        is_selected: Callable[[Record], bool],
        spared: Callable[[Record], bool],
        claim: Callable[[Identity, Image, Image, datetime | None], bool],
        start: datetime,
    ) -> None:
        self._is_selected = is_selected
        self._spared = spared
        self._claim = claim
        self._start = start
        self._steps: dict[Identity, UndoStep] = {}
        self._expired: dict[Identity, bytes] = {}  # their keys
        self._own = _OwnWrites()

    def on_record(self, record: Record) -> None:
        """Takes in a change. Raises StreamError where it has no images."""
        item = identity(record.wire.dynamodb.Keys)
        step = self._steps.get(item)
        change = record.wire.dynamodb
        is_selected = self._is_selected(record)
        if is_selected and self._spared(record):
            is_selected = False
            self._expired[item] = bytes(change.Keys)
        old, new = bytes(change.OldImage) or None, bytes(change.NewImage) or None
        # Also of a change that is not chosen: each write of an undo is one of several equal ones.
        if self._claim(item, old, new, record.created_at):
            self._on_own_write(
                record, item, UndoStep(bytes(change.Keys), old, new, new), is_selected
            )
            return
        if step is None and not is_selected:
            return
        if record.images_missing:
            view = record.wire.dynamodb.StreamViewType or "none"
            text = f"a {record.event_name} lacks an image (view type {view})"
            raise StreamError(f"{text}; NEW_AND_OLD_IMAGES is needed to undo changes")
        if step is not None:
            _go_on(step, is_selected, old, new)
        else:
            reason = AFTER_UNDO if item in self._own else ""
            reason = BROKEN if _has_half_pairs(record) else reason
            self._steps[item] = UndoStep(bytes(change.Keys), old, new, new, conflict=reason)

    def _on_own_write(
        self, record: Record, item: Identity, write: UndoStep, is_selected: bool
    ) -> None:
        if record.created_at is not None and record.created_at >= self._start:
            self._own.add(item, write, is_selected)
        if step := self._steps.get(item):
            step.now = write.now
            step.is_back = step.by_undo = is_same(write.now, step.before)

    def steps(self) -> list[UndoStep]:
        """Returns a step for each item, in the order in which the items were touched.

        The reason stands in those that are left alone.
        """
        for step in self._steps.values():
            _judge(step)
        own = [step for item, step in self._own.selected() if item not in self._steps]
        for step in own:
            step.kept = OWN
        expired = [
            UndoStep(key, None, None, None, kept=EXPIRED)
            for item, key in self._expired.items()
            if item not in self._steps
        ]
        return [*self._steps.values(), *own, *expired]


def _go_on(step: UndoStep, is_selected: bool, old: Image, new: Image) -> None:
    """Takes in a further change of an item, by somebody else than an undo."""
    step.now = new
    came_back = is_same(new, step.before)
    if not is_selected:
        step.is_back = step.is_back or came_back
        return
    if step.by_undo:
        step.conflict = step.conflict or AFTER_UNDO
    elif not (is_same(step.after, old) or (step.is_back and is_same(step.before, old))):
        step.conflict = step.conflict or BETWEEN
    step.after, step.is_back = new, False
    step.changes += 1


def _judge(step: UndoStep) -> None:
    """Sets the reason to leave an item alone, if there is one."""
    if is_same(step.now, step.before):
        step.kept = step.kept or (BY_UNDO if step.by_undo else AS_BEFORE)
    elif is_same(step.after, step.before):
        step.kept = step.kept or BY_ITSELF
    elif step.is_back:
        step.conflict = step.conflict or (AFTER_UNDO if step.by_undo else PUT_BACK)
    elif not is_same(step.now, step.after):
        step.conflict = step.conflict or CHANGED


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
    """Returns how many write capacity units it takes to put an item, or to delete it."""
    return 1 if image is None else max(1, -(-_size(_any.decode(image)) // 1024))


def _size(item: WireItem) -> int:
    """Returns an item's size in bytes, by the rules of

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


def _value_size(value: WireValue) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode("utf-8", "surrogatepass"))
        case "N":
            return len(content) // 2 + 1
        case "B":
            return len(content) * 3 // 4
        case "M":
            return 3 + len(content) + _size(content)
        case "L":
            return 3 + len(content) + sum(map(_value_size, content))
        case "SS" | "NS" | "BS":
            return sum(_value_size({kind[0]: each}) for each in content)
    return 1


def total_units(steps: Iterable[UndoStep]) -> int:
    """Returns the cost of all steps: a write costs by the larger of the old and the new item."""
    return sum(max(units(step.before), units(step.now)) for step in steps)


def _has_half_pairs(record: Record) -> bool:
    raw = bytes(record.raw)
    return b"\\ud" in raw.lower() and mend(raw) != raw
