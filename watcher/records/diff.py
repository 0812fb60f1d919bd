"""Compares an item before and after a change, in wire types; everything here compares this way.

Values are equal as for DynamoDB: `BOOL true` is not `N 1`, but `N 1` is `N 1.0`, at any length; the
order counts in lists and not in sets; binary values are compared by their bytes. Keys get one form:
DynamoDB Local's records have a number's text as a request had it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import zip_longest
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from watcher.aws.model import WireItem, WireValue, typed
from watcher.errors import WatcherError
from watcher.records.wire import SNAPSHOT, WireRecord

Content: TypeAlias = Any
"""The content of a value on the wire, by its kind: `N` a text, `M` a map, `L` a list."""

_shallow: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any_json: Final = msgspec.json.Decoder()
_Item: TypeAlias = dict[str, msgspec.Raw]

# For text without escapes, numbers in DynamoDB's form and booleans, other bytes are another value.
_are_plain: Final = re.compile(
    rb'(?:\{"(?:S":"[^"\\]*+"|N":"(?:0|-?(?:[1-9][0-9]*+|0(?=\.))(?:\.[0-9]*[1-9])?)"'
    rb'|BOOL":(?:true|false))\}\n)*+'
).fullmatch


class Absent:
    """The type of ABSENT, the value of an attribute that an item does not have."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False


ABSENT: Final = Absent()

OldAndNew: TypeAlias = tuple[WireValue | Absent, WireValue | Absent]


def images_missing(record: WireRecord) -> bool:
    """Returns True where the view type leaves out an image that this kind of change has."""
    change, kind = record.dynamodb, record.eventName
    is_first = kind in ("INSERT", SNAPSHOT)
    return not ((change.NewImage or kind == "REMOVE") and (change.OldImage or is_first))


def changed_values(record: WireRecord) -> dict[str, OldAndNew] | None:
    """Returns old and new value of each attribute that differs; None where an image is missing."""
    if images_missing(record):
        return None
    return differing(*_images(record))


def changed_attributes(record: WireRecord) -> list[str] | None:
    """Returns the names of the attributes that differ; None where an image is missing."""
    if images_missing(record):
        return None
    old, new = _images(record)
    # Most often an item keeps its names.
    names = new if old.keys() == new.keys() else dict.fromkeys([*new, *old])
    return [
        name
        for name in names
        if (before := old.get(name)) != (after := new.get(name)) and _differ(before, after)
    ]


def _images(record: WireRecord) -> tuple[_Item, _Item]:
    change = record.dynamodb
    old = _shallow.decode(change.OldImage) if change.OldImage else {}
    return old, _shallow.decode(change.NewImage) if change.NewImage else {}


def _differ(old: msgspec.Raw | None, new: msgspec.Raw | None) -> bool:
    """Returns True where two values with different bytes are different values, too."""
    if old is None or new is None:
        return True
    are_plain = _are_plain(b"%b\n%b\n" % (old, new)) is not None
    return are_plain or not same(_any_json.decode(old), _any_json.decode(new))


def differing(
    old: Mapping[str, msgspec.Raw],
    new: Mapping[str, msgspec.Raw],
    decode: Callable[[msgspec.Raw], WireValue] = _any_json.decode,
) -> dict[str, OldAndNew]:
    """Returns old and new value of each attribute that differs; the items' values are undecoded."""
    found = {}
    for name in dict.fromkeys([*new, *old]):
        # Equal bytes are equal values: most often the comparison ends here.
        if (raw_old := old.get(name)) != (raw_new := new.get(name)):
            before = ABSENT if raw_old is None else decode(raw_old)
            after = ABSENT if raw_new is None else decode(raw_new)
            if not same(before, after):
                found[name] = before, after
    return found


def same(old: WireValue | Absent, new: WireValue | Absent) -> bool:
    """Returns True where DynamoDB takes two values for one. Raises WatcherError for a bad value."""
    if isinstance(old, Absent) or isinstance(new, Absent):
        return old is new
    try:
        return _meaning(old) == _meaning(new)
    except (AttributeError, TypeError, ValueError) as error:
        raise WatcherError(f"not a DynamoDB attribute value: {error}") from error


def to_number(text: str) -> Decimal | str:
    """Converts a number with all its digits; other text (an emulator's `NaN`) stays text."""
    if "_" in text or not text.isascii():  # `1_0` and other scripts' digits are Python's numbers
        return text
    try:
        made = Decimal(text)
    except InvalidOperation:
        return text
    return made if made.is_finite() else text


# Converts a value's content to one that is equal for equal contents.
_MEANING: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("S", "BOOL"), lambda content: content),
    "NULL": lambda _: None,
    "N": to_number,
    "B": base64.b64decode,
    "M": lambda item: {name: _meaning(value) for name, value in item.items()},
    "L": lambda values: [_meaning(value) for value in values],
    "SS": frozenset,
    "NS": lambda values: frozenset(map(to_number, values)),
    "BS": lambda values: frozenset(map(base64.b64decode, values)),
}


def _meaning(value: WireValue) -> tuple[str, Content]:
    kind, content = typed(value)
    if kind in _MEANING:
        return kind, _MEANING[kind](content)
    raise WatcherError(f"not a DynamoDB attribute value: {value!r}")


class Difference(NamedTuple):
    """One difference between two items: its path, the old and the new value."""

    path: tuple[str | int, ...]
    """An attribute's name, then the names in maps and the indexes in lists."""
    old: WireValue | Absent
    new: WireValue | Absent


def differences(
    old: WireValue | Absent, new: WireValue | Absent, path: tuple[str | int, ...] = ()
) -> Iterator[Difference]:
    """Yields every difference between two values, within maps and lists one by one."""
    if isinstance(old, Absent) or isinstance(new, Absent):
        yield Difference(path, old, new)
    elif "M" in old and "M" in new:
        before, after = old["M"], new["M"]
        for name in dict.fromkeys([*after, *before]):
            yield from differences(before.get(name, ABSENT), after.get(name, ABSENT), (*path, name))
    elif "L" in old and "L" in new:
        pairs = zip_longest(old["L"], new["L"], fillvalue=ABSENT)
        for index, (before, after) in enumerate(pairs):
            yield from differences(before, after, (*path, index))
    elif not same(old, new):
        yield Difference(path, old, new)


WireKey: TypeAlias = dict[str, dict[str, str]]
"""`{"PK": {"S": "user-1"}}`, binary values in base64."""

_decode: Final = msgspec.json.Decoder(WireKey).decode
_encode: Final = msgspec.json.Encoder().encode
# A number as the service itself writes it.
_is_normal: Final = re.compile(r"0|-?(?:[1-9][0-9]*+|0(?=\.))(?:\.[0-9]*[1-9])?").fullmatch
_NUMBER: Final = b'"N"'
# Of an emulator: written out, it would be as long.
_LARGEST_EXPONENT: Final = 400


def number_text(text: str) -> str:
    """Returns the one text of a number: `1.0`, `+1` and `10E-1` are `1`. Other text stays."""
    if _is_normal(text):
        return text
    number = to_number(text)
    if isinstance(number, str) or abs(number.adjusted()) > _LARGEST_EXPONENT:
        return text
    written = f"{number:f}"
    if "." in written:
        written = written.rstrip("0").rstrip(".")
    return "0" if written in ("-0", "") else written


def normal_key(key: WireItem) -> WireKey:
    """Returns a key whose numbers have their one text."""
    return {
        name: {kind: number_text(text) if kind == "N" else text for kind, text in value.items()}
        for name, value in key.items()
    }


def key_of(keys: bytes | msgspec.Raw) -> WireKey:
    """Returns a record's `Keys` with one text for each number."""
    return normal_key(_decode(keys))


def normal_keys(keys: Sequence[bytes | msgspec.Raw]) -> Sequence[bytes | msgspec.Raw]:
    """Returns the wire's JSON of keys with one text for each number; most stay as they are."""
    if not any(_NUMBER in bytes(each) for each in keys):
        return keys
    return [_normal(each) for each in keys]


def _normal(raw: bytes | msgspec.Raw) -> bytes | msgspec.Raw:
    if not raw:
        return raw
    key = _decode(raw)
    normal = normal_key(key)
    return raw if normal == key else _encode(normal)
