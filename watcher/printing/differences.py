"""What differs between two items, attribute by attribute, a line each: old -> new."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from watcher.printing.escaping import ordered, printable, printable_key
from watcher.printing.shortening import shown_item, shown_pair, shown_value
from watcher.printing.style import paint, shown_time
from watcher.record.boto3_shape import native
from watcher.record.compare import (
    Absent,
    Difference,
    OldAndNew,
    changed_attributes,
    changed_values,
    differences,
)
from watcher.record.images import plain_json
from watcher.record.record import Record

# A line's mark, and the kind of change whose colour it has.
_MARKS: Final = {"+": "INSERT", "~": "MODIFY", "-": "REMOVE"}


def change_lines(record: Record) -> Iterator[str]:
    """A change: what kind, when, of which item; and what is different since."""
    kind, keys = record.event_name, record["dynamodb"]["Keys"]
    by_ttl = " (expired by TTL)" if record.expired_by_ttl else ""
    head = f"{shown_time(record.created_at)} {printable_key(keys)}{by_ttl}"
    yield f"{paint(f'{kind:<6}', kind)} {head}"
    values = changed_values(record.wire)
    if values is None:
        yield from _without_comparison(record)
    for name, pair in sorted((values or {}).items()):
        if name not in keys:  # it is in the first line
            yield from attribute_lines(name, pair)


def attribute_lines(name: str, pair: OldAndNew) -> Iterator[str]:
    """An attribute's differences, those within maps and lists one by one."""
    for each in differences(*pair, (name,)):
        mark, text = _described(each)
        yield "  " + paint(f"{mark} {place_text(each.place)}: {text}", _MARKS[mark])


class Described(NamedTuple):
    """One place that differs, in words."""

    mark: str
    """`+`, `~` or `-`; "" for what is no difference."""
    place: str
    text: str


def described(record: Record) -> Iterator[Described]:
    """What is different since a change, place by place, without colours."""
    values = changed_values(record.wire)
    if values is None:
        for line in _without_comparison(record):
            yield Described("", "", line.strip())
    keys = record["dynamodb"]["Keys"]
    for name, pair in sorted((values or {}).items()):
        for each in differences(*pair, (name,)) if name not in keys else ():
            mark, text = _described(each)
            yield Described(mark, place_text(each.place), text)


def change_text(record: Record) -> str:
    """What is different since a change, in one line without colours."""
    lines = described(record)
    return "; ".join(f"{mark}{place}: {text}" if mark else text for mark, place, text in lines)


def plain_differences(record: Record) -> tuple[str, str]:
    """Old and new values of the attributes that differ, as plain JSON; "" where there are none.

    Where the stream's view type leaves out what it takes to compare, the images that there are.
    """
    change = record.wire.dynamodb
    old, new = (image or "" for image in plain_json([change.OldImage, change.NewImage]))
    if not (old and new):
        return old, new
    names = changed_attributes(record.wire) or ()
    return _only(old, names), _only(new, names)


def _only(image: str, names: Iterable[str]) -> str:
    values = msgspec.json.decode(image, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({each: values[each] for each in names if each in values}).decode()


def place_text(place: tuple[str | int, ...]) -> str:
    """`lines[2].qty`"""
    parts = (f"[{part}]" if isinstance(part, int) else f".{printable(part)}" for part in place)
    return "".join(parts)[1:]


def _without_comparison(record: Record) -> Iterator[str]:
    """What there is, where the stream's view type leaves out what it takes to compare."""
    view = record["dynamodb"].get("StreamViewType", "KEYS_ONLY")
    for name, image in (("old", record.old), ("new", record.new)):
        if image is not None:
            yield f"  {name} {shown_item(image, record.key)}"
    yield f"  (nothing to compare: the stream's view type is {view})"


def _described(difference: Difference) -> tuple[str, str]:
    """A line's mark, and its text."""
    _, before, after = difference
    if isinstance(after, Absent):
        return "-", "" if isinstance(before, Absent) else shown_value(native(before))
    new = native(after)
    if isinstance(before, Absent):
        return "+", shown_value(new)
    old = native(before)
    if isinstance(old, set) and isinstance(new, set):
        return "~", " ".join([*_elements("+", new - old), *_elements("-", old - new)])
    shown_old, shown_new = shown_pair(old, new)
    return "~", f"{shown_old} -> {shown_new}"


def _elements(mark: str, values: set[Any]) -> list[str]:
    return [mark + shown_value(each) for each in ordered(values)]
