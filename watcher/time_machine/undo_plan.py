"""Plans an undo: for each item that the chosen changes touched, its image before them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from watcher.aws.json_text import mend
from watcher.errors import StreamError
from watcher.records.diff import OldAndNew, differing
from watcher.records.record import Record
from watcher.time_machine.item_keys import Identity, identity

_shallow: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any: Final = msgspec.json.Decoder()
Image = bytes | None
"""An item as the wire's JSON; None where there is none."""

BETWEEN = "another change lies between those that are to be undone"
CHANGED = "it was changed since"
BROKEN = "half a character in it can't be written back"


class UndoStep(msgspec.Struct):
    """One item to put back."""

    key: bytes
    """The item's key, as the wire's JSON."""
    before: Image
    """The item before the first change to undo."""
    left: Image
    """The item after the last change to undo."""
    now: Image
    """The item when the changes were read."""
    changes: int = 1
    came_back: bool = False
    """True where the item was as before for a while since, by itself or by an undo."""
    conflict: str = ""
    """The reason to leave the item alone; "" where there is none."""


class UndoPlanner:
    """Collects the steps of an undo from records; those of one item come in their order.

    `chosen` tells the changes to undo, `claim` those that an earlier undo made.
    """

    def __init__(
        self,
        chosen: Callable[[Record], bool],
        claim: Callable[[Identity, Image, Image, datetime | None], bool],
    ) -> None:
        self._chosen = chosen
        self._claim = claim
        self._steps: dict[Identity, UndoStep] = {}
        self.own_changes = 0
        """How many of the chosen changes an earlier undo made."""

    def on_record(self, record: Record) -> None:
        """Takes in a change. Raises StreamError where it has no images."""
        item = identity(record.wire.dynamodb.Keys)
        step = self._steps.get(item)
        chosen = self._chosen(record)
        change = record.wire.dynamodb
        old, new = bytes(change.OldImage) or None, bytes(change.NewImage) or None
        # Also of a change that is not chosen: each write of an undo is one of several equal ones.
        is_own = self._claim(item, old, new, record.created_at)
        if step is None and not chosen:
            return
        if record.images_missing:
            view = record.wire.dynamodb.StreamViewType or "none"
            text = f"a {record.event_name} lacks an image (view type {view})"
            raise StreamError(f"{text}: it takes NEW_AND_OLD_IMAGES to undo changes")
        self.own_changes += chosen and is_own
        chosen = chosen and not is_own
        if step is not None:
            self._go_on(step, chosen, old, new)
        elif chosen:
            broken = BROKEN if _has_half_pairs(record) else ""
            step = UndoStep(bytes(change.Keys), old, new, new, conflict=broken)
            step.came_back = is_same(old, new)
            self._steps[item] = step

    def _go_on(self, step: UndoStep, chosen: bool, old: Image, new: Image) -> None:
        step.now = new
        came_back = is_same(new, step.before)
        if chosen:
            if not (is_same(step.left, old) or (step.came_back and is_same(step.before, old))):
                step.conflict = step.conflict or BETWEEN
            step.left, step.came_back = new, came_back
            step.changes += 1
        else:
            step.came_back = step.came_back or came_back

    def steps(self) -> list[UndoStep]:
        """Returns the steps that are left to do, in the order in which their items were touched.

        An item that was changed since is a conflict.
        """
        found = []
        for step in self._steps.values():
            if is_same(step.now, step.before):
                continue
            if not is_same(step.now, step.left):
                if step.came_back:
                    continue
                step.conflict = step.conflict or CHANGED
            found.append(step)
        return found


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


def _size(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Returns an item's size in bytes, by the rules of

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


def _value_size(value: Mapping[str, Any]) -> int:
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
