"""Writes items back where they are unchanged: by conditional writes, within a rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from watcher.aws.model import WireItem
from watcher.aws.tables import Condition, Written
from watcher.call_pool import CallPool
from watcher.errors import StreamError
from watcher.records.record import image_of, wire_item
from watcher.time_machine.table import TableHandle
from watcher.time_machine.undo_plan import (
    AS_BEFORE,
    CHANGED,
    NOTHING,
    Image,
    UndoStep,
    is_same,
)

# A condition may have 300 operators (one for each attribute, and the AND between), and 4 KB.
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
_MAX_ATTRIBUTES: Final = 150
_MAX_BYTES: Final = 4096
_AND: Final = " AND "
# The items that are written before the next ones are read.
_WRITES_AT_ONCE: Final = 25
# Enough for the default rate at 50 ms a write.
_THREADS: Final = 8


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


class WriteBack:
    """Puts items back into one table, at most `rate` write capacity units a second.

    An item is read, compared whole, and written under a condition that compares as much of it as
    DynamoDB allows. The replaced item in the answer is compared whole once more: a change that
    came in between (in an attribute that had no room in the condition) is put back at once.
    """

    def __init__(self, table: TableHandle, rate: float) -> None:
        self._tables = table.tables
        self._name = table.name
        self._clock = table.clock
        self._rate = rate

    def run(self, steps: Iterable[UndoStep]) -> Iterator[StepResult]:
        """Puts the items back.

        Raises StreamError, once the outcomes of all writes before it are yielded.
        """
        calls = CallPool(most=_THREADS)
        try:
            for batch in self._batches(steps):
                began, used = self._clock.monotonic(), 0.0
                failed: StreamError | None = None
                tries = calls.start([partial(self._try, step) for step in batch])
                for step, tried in zip(batch, tries, strict=True):
                    result = tried.result()
                    if isinstance(result, StreamError):
                        failed = failed or result
                        continue
                    outcome, cost = result
                    used += cost
                    yield StepResult(step, outcome)
                if failed is not None:
                    raise failed
                seconds_left = began + used / self._rate - self._clock.monotonic()
                if seconds_left > 0:
                    self._clock.sleep(seconds_left)
        except KeyboardInterrupt:
            calls.close(wait=False)  # the next run finds what the writes under way have done
            raise
        finally:
            calls.close()

    def _batches(self, steps: Iterable[UndoStep]) -> Iterator[list[UndoStep]]:
        """Splits the steps so that a batch costs no more than a second's units."""
        batch: list[UndoStep] = []
        cost = 0
        for step in steps:
            more = step.units
            if batch and (len(batch) == _WRITES_AT_ONCE or cost + more > self._rate):
                yield batch
                batch, cost = [], 0
            batch.append(step)
            cost += more
        if batch:
            yield batch

    def _current(self, step: UndoStep) -> Image:
        return _image(self._tables.get(self._name, wire_item(step.key)))

    def _try(self, step: UndoStep) -> tuple[Outcome, float] | StreamError:
        """Returns the outcome and its write units.

        A failure is returned, too, so that the writes beside it are yielded.
        """
        try:
            now = self._current(step)
            outcome = _outcome_before_write(step, now)
            return self._write(step, now) if outcome is None else (outcome, 0.0)
        except StreamError as error:
            return error

    def _write(self, step: UndoStep, now: Image) -> tuple[Outcome, float]:
        key, before = wire_item(step.key), _item(step.before)
        written = self._swap(key, _item(now), before)
        if written is None:
            # Our own first attempt, whose answer was lost, may have succeeded before this one.
            if is_same(self._current(step), step.before):
                return Outcome.RESTORED, 1.0
            step.conflict = step.conflict or CHANGED
            return Outcome.CONFLICT, 1.0
        replaced = _image(written.old)
        if is_same(replaced, now) or is_same(replaced, step.before):
            return Outcome.RESTORED, written.units
        # As it was read: an image has another character for half a surrogate pair.
        again = self._swap(key, before, written.old)
        step.conflict = step.conflict or CHANGED
        return Outcome.CONFLICT, written.units + (again.units if again else 1.0)

    def _swap(self, key: WireItem, old: WireItem | None, new: WireItem | None) -> Written | None:
        """Replaces an item by another; None where the table has neither of them."""
        condition = unchanged_condition(old, key, new)
        if new is None:
            return self._tables.delete(self._name, key, condition)
        return self._tables.put(self._name, new, condition)


def _outcome_before_write(step: UndoStep, now: Image) -> Outcome | None:
    """Returns the outcome of an item that is not written; None for one to write."""
    if is_same(now, step.before):
        step.kept = AS_BEFORE
        return Outcome.ALREADY
    if not is_same(now, step.now):
        step.conflict = step.conflict or CHANGED
    return Outcome.CONFLICT if step.conflict else None


def _image(item: WireItem | None) -> Image:
    return NOTHING if item is None else msgspec.Raw(image_of(item))


def _item(image: Image) -> WireItem | None:
    return None if image == NOTHING else wire_item(image)
