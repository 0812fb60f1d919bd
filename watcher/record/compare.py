"""What differs between an item before a change and after it: the one comparison, on wire types.

It is DynamoDB's own: `BOOL true` is not `N 1`, but `N 1` is `N 1.0`, with however many digits; the
order counts in lists and not in sets; binary values are their bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from itertools import zip_longest
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from watcher.errors import WatcherError
from watcher.record.wire import WireRecord

Attribute: TypeAlias = Mapping[str, Any]
"""An attribute's value on the wire: `{"N": "1"}`."""

_shallow: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any_json: Final = msgspec.json.Decoder()


class Absent:
    """The type of ABSENT, the value of an attribute that an item does not have."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False


ABSENT: Final = Absent()

OldAndNew: TypeAlias = tuple[Attribute | Absent, Attribute | Absent]


def images_missing(record: WireRecord) -> bool:
    """Whether an image that this kind of change should have is missing (by the view type)."""
    change, kind = record.dynamodb, record.eventName
    return not ((change.NewImage or kind == "REMOVE") and (change.OldImage or kind == "INSERT"))


def changed_values(record: WireRecord) -> dict[str, OldAndNew] | None:
    """Old and new value of each attribute that differs; None where an image is missing."""
    if images_missing(record):
        return None
    change = record.dynamodb
    old = _shallow.decode(change.OldImage) if change.OldImage else {}
    new = _shallow.decode(change.NewImage) if change.NewImage else {}
    return differing(old, new)


def changed_attributes(record: WireRecord) -> list[str] | None:
    """The names of the attributes that differ; None where the view type's images can't tell."""
    values = changed_values(record)
    return None if values is None else list(values)


def differing(
    old: Mapping[str, msgspec.Raw],
    new: Mapping[str, msgspec.Raw],
    decode: Callable[[msgspec.Raw], Attribute] = _any_json.decode,
) -> dict[str, OldAndNew]:
    """Old and new value of each attribute that differs, of items whose values are undecoded."""
    found = {}
    for name in dict.fromkeys([*new, *old]):
        # Equal bytes are equal values, and most often there is nothing more to do.
        if (raw_old := old.get(name)) != (raw_new := new.get(name)):
            before = ABSENT if raw_old is None else decode(raw_old)
            after = ABSENT if raw_new is None else decode(raw_new)
            if not same(before, after):
                found[name] = before, after
    return found


def same(old: Attribute | Absent, new: Attribute | Absent) -> bool:
    """Whether two values are one to DynamoDB. Raises WatcherError for what is no value."""
    if isinstance(old, Absent) or isinstance(new, Absent):
        return old is new
    try:
        return _meaning(old) == _meaning(new)
    except (AttributeError, TypeError, ValueError) as error:
        raise WatcherError(f"not a DynamoDB attribute value: {error}") from error


def _meaning(value: Attribute) -> tuple[str, Any]:
    """What is the same for values that are the same."""
    kind, content = _content(value)
    match kind:
        case "N":
            return kind, to_number(content)
        case "B":
            return kind, base64.b64decode(content)
        case "M":
            return kind, {name: _meaning(part) for name, part in content.items()}
        case "L":
            return kind, [_meaning(part) for part in content]
        case "SS":
            return kind, frozenset(content)
        case "NS":
            return kind, frozenset(map(to_number, content))
        case "BS":
            return kind, frozenset(map(base64.b64decode, content))
        case "NULL":
            return kind, None
    return kind, content


_KINDS: Final = frozenset(("S", "N", "B", "BOOL", "NULL", "M", "L", "SS", "NS", "BS"))


def _content(value: Attribute) -> tuple[str, Any]:
    """A value's type and what stands under it. Raises WatcherError for what is no value."""
    for kind, content in value.items():
        if kind in _KINDS:
            return kind, content
    raise WatcherError(f"not a DynamoDB attribute value: {value!r}")


def to_number(text: str) -> Decimal | str:
    """A number with all its digits; text that is none (an emulator's `NaN`) stays text."""
    try:
        made = Decimal(text)
    except InvalidOperation:
        return text
    return made if made.is_finite() else text


class Difference(NamedTuple):
    """One place where two items differ."""

    place: tuple[str | int, ...]
    """The way there: an attribute's name, then names in maps and indices in lists."""
    old: Attribute | Absent
    new: Attribute | Absent


def differences(
    old: Attribute | Absent, new: Attribute | Absent, place: tuple[str | int, ...] = ()
) -> Iterator[Difference]:
    """Every place where two values differ, those within maps and lists one by one."""
    kind, before = _content_if_any(old)
    other, after = _content_if_any(new)
    if kind == other == "M":
        for name in dict.fromkeys([*after, *before]):
            inner = before.get(name, ABSENT), after.get(name, ABSENT)
            yield from differences(*inner, (*place, name))
    elif kind == other == "L":
        for index, (one, another) in enumerate(zip_longest(before, after, fillvalue=ABSENT)):
            yield from differences(one, another, (*place, index))
    elif not same(old, new):
        yield Difference(place, old, new)


def _content_if_any(value: Attribute | Absent) -> tuple[str, Any]:
    return ("", None) if isinstance(value, Absent) else _content(value)
