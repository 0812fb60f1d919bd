"""Puts items back: each only if it still is what it was left as, compared whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple

from watcher.aws.tables import Condition, Item, Written
from watcher.errors import StreamError
from watcher.pull.calls import CallPool
from watcher.records.record import image_of, wire_item
from watcher.time_machine.sources import TableHandle
from watcher.time_machine.undo_log import UndoLog
from watcher.time_machine.undo_plan import BROKEN, CHANGED, Image, UndoStep, is_same, units

# Of 300 operators, one for each attribute, and the AND between; and of 4 KB of text.
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
_MOST: Final = 150
_MOST_BYTES: Final = 4096
_AND: Final = " AND "


def still(
    expected: Mapping[str, Any] | None, key: Mapping[str, Any], other: Mapping[str, Any] | None
) -> Condition:
    """That an item is what is `expected` (in botocore's form), None: that there is none.

    What it differs in from the `other` that is to be written comes first: where not all of its
    attributes have room, a repeated write must not pass for the first one.
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
        if len(clauses) == _MOST or size > _MOST_BYTES:
            break
        clauses.append(clause)
        names[f"#{number}"] = name
        if is_there:
            values[f":{number}"] = expected[name]
    if not clauses:  # nothing but its key
        return Condition("attribute_exists(#0)", {"#0": next(iter(key))}, {})
    return Condition(_AND.join(clauses), names, values)


def _in_turn(
    expected: Mapping[str, Any], key: Mapping[str, Any], other: Mapping[str, Any]
) -> Iterator[str]:
    """The attributes to compare; the key is the item's name, and need not be."""
    names = [name for name in dict.fromkeys([*expected, *other]) if name not in key]
    yield from (name for name in names if expected.get(name) != other.get(name))
    yield from (name for name in names if expected.get(name) == other.get(name))


_AT_ONCE = 25
_THREADS = 8


class Outcome(Enum):
    """What has become of an item."""

    RESTORED = "restored"
    CONFLICT = "conflict"
    ALREADY = "already as it was"


class Done(NamedTuple):
    """An item, and what has become of it."""

    step: UndoStep
    outcome: Outcome


class _Tried(NamedTuple):
    outcome: Outcome
    units: float
    found: Image = None
    """What the write has replaced, and what was put back at once."""


class WriteBack:
    """Writes to one table, `rate` write capacity units a second at most.

    An item is read, compared whole, noted in the log, and written on conditions that compare as
    much of it as DynamoDB allows. What the write then says it has replaced is compared whole once
    more: what has got in between (an attribute that no condition could name) is put back at once.
    """

    def __init__(self, table: TableHandle, log: UndoLog, rate: float) -> None:
        self._tables = table.tables
        self._name = table.name
        self._clock = table.clock
        self._log = log
        self._rate = rate

    def run(self, steps: Iterable[UndoStep], *, force: bool = False) -> Iterator[Done]:
        """Put them back; `force` also those that were changed, as they are when it looks at them.

        Raises StreamError, once all that was written is noted and given.
        """
        calls = CallPool(most=_THREADS)
        try:
            for batch in self._batches(steps):
                began = self._clock.monotonic()
                looks = calls.start([partial(self._look, step) for step in batch])
                found = [each.result() for each in looks]
                outcomes = {
                    id(step): _before(step, now, force)
                    for step, now in zip(batch, found, strict=True)
                }
                to_write = [
                    (step, now)
                    for step, now in zip(batch, found, strict=True)
                    if outcomes[id(step)] is None
                ]
                numbers = self._log.begin(to_write) if to_write else []
                used = 0.0
                failed: StreamError | None = None
                writes = calls.start([partial(self._try, each) for each in to_write])
                for (step, _), number, written in zip(to_write, numbers, writes, strict=True):
                    tried = written.result()
                    if isinstance(tried, StreamError):
                        failed = failed or tried
                        batch.remove(step)
                        continue
                    self._log.end(number, tried.outcome is Outcome.RESTORED, tried.found)
                    outcomes[id(step)] = tried.outcome
                    used += tried.units
                for step in batch:
                    yield Done(step, outcomes[id(step)] or Outcome.CONFLICT)
                if failed is not None:
                    raise failed
                self._rest(began, used)
        except KeyboardInterrupt:
            calls.close(wait=False)  # what is under way is in the log
            raise
        finally:
            calls.close()

    def _batches(self, steps: Iterable[UndoStep]) -> Iterator[list[UndoStep]]:
        """No more at once than a second's units."""
        batch: list[UndoStep] = []
        cost = 0
        for step in steps:
            more = max(units(step.before), units(step.left))
            if batch and (len(batch) == _AT_ONCE or cost + more > self._rate):
                yield batch
                batch, cost = [], 0
            batch.append(step)
            cost += more
        if batch:
            yield batch

    def _rest(self, began: float, used: float) -> None:
        left = began + used / self._rate - self._clock.monotonic()
        if left > 0:
            self._clock.sleep(left)

    def _look(self, step: UndoStep) -> Image:
        return _image(self._tables.get(self._name, wire_item(step.key)))

    def _try(self, what: tuple[UndoStep, Image]) -> _Tried | StreamError:
        """What fails hides nothing of what is written beside it."""
        try:
            return self._write(what)
        except StreamError as error:
            return error

    def _write(self, what: tuple[UndoStep, Image]) -> _Tried:
        step, now = what
        written = self._swap(step.key, now, step.before)
        if written is None:
            # Our own first attempt, whose answer was lost, may have come before this one.
            if is_same(self._look(step), step.before):
                return _Tried(Outcome.RESTORED, 1.0)
            step.conflict = step.conflict or CHANGED
            return _Tried(Outcome.CONFLICT, 1.0)
        replaced = _image(written.old)
        if is_same(replaced, now) or is_same(replaced, step.before):
            return _Tried(Outcome.RESTORED, written.units)
        again = self._swap(step.key, step.before, replaced)
        step.conflict = step.conflict or CHANGED
        cost = written.units + (again.units if again else 1.0)
        return _Tried(Outcome.CONFLICT, cost, replaced)

    def _swap(self, key_json: bytes, old: Image, new: Image) -> Written | None:
        """Write an item in the place of another; None where that is not what is there."""
        key = wire_item(key_json)
        expected = None if old is None else wire_item(old)
        if new is None:
            return self._tables.delete(self._name, key, still(expected, key, None))
        item = wire_item(new)
        return self._tables.put(self._name, item, still(expected, key, item))


def _before(step: UndoStep, now: Image, force: bool) -> Outcome | None:
    """What can be said of an item before it is written; None where it is to be written."""
    if is_same(now, step.before):
        return Outcome.ALREADY
    if step.conflict == BROKEN:
        return Outcome.CONFLICT
    if force:
        return None
    if not is_same(now, step.left):
        step.conflict = step.conflict or CHANGED
    return Outcome.CONFLICT if step.conflict else None


def _image(item: Item | None) -> Image:
    return None if item is None else image_of(item)
