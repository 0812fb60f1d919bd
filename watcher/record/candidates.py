"""Which records of a page a filter can match at all, told of all of them at once.

A shortcut before the filter's own test, which takes a microsecond a record: most filters ask for
one attribute's value, and most records have another one there.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec

from watcher.record.filter_patterns import Pattern
from watcher.record.wire import WireRecord

Condition: TypeAlias = Callable[[Sequence[WireRecord], Sequence[int]], Sequence[int]]
_Holds: TypeAlias = Callable[[Sequence[int], Iterable[str]], list[int]]

_IMAGES = ("Keys", "NewImage", "OldImage")
_NO_NUMBER = "nan"  # which is in no range


class Candidates:
    """The places of records that one of the patterns may match; of the others, none does."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._conditions = list(_conditions(patterns[0])) if len(patterns) == 1 else []

    def __call__(self, records: Sequence[WireRecord]) -> Sequence[int]:
        """Of these; a condition that fails (on a number that is none, say) leaves out none."""
        places: Sequence[int] = range(len(records))
        for condition in self._conditions:
            with contextlib.suppress(ValueError, msgspec.DecodeError):
                places = condition(records, places)
        return places


def _conditions(pattern: Pattern) -> Iterator[Condition]:
    """What must hold for a record to match; each by itself."""
    if texts := _texts(pattern.get("eventName")):
        yield _of_kind(texts)
    change = pattern.get("dynamodb")
    images = change if isinstance(change, Mapping) else {}
    for image in _IMAGES:
        for names, accepted in _leaves(images.get(image)):
            holds = _numbers(accepted) if names[-1] == "N" else None
            if holds := holds or _among(accepted):
                # A name may have a quote or a backslash, or be none of JSON's.
                with contextlib.suppress(ValueError, UnicodeError):
                    yield _of_value(image, names, holds)


def _leaves(part: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values that are asked for, each with the way there: attribute, type, attribute, type…

    Not those of lists, where any of the elements may match.
    """
    if isinstance(part, Mapping):
        for name, inner in part.items():
            if name != "$or":
                yield from _leaves(inner, (*names, name))
    elif len(names) % 2 == 0 and names and {*names[1:-1:2]} <= {"M"} and names[-1] in "SNB":
        yield names, part


def _of_kind(kinds: set[str]) -> Condition:
    return lambda records, places: [each for each in places if records[each].eventName in kinds]


def _of_value(image: str, names: Sequence[str], holds: _Holds) -> Condition:
    """Of each record's image only this value is decoded."""
    kind: Any = str
    value: Any = _NO_NUMBER if names[-1] == "N" else ""
    for name in reversed(names):
        kind = msgspec.defstruct(
            "At", [("at", kind, value)], rename={"at": name}, frozen=True, gc=False
        )
        value = kind()
    decode = msgspec.json.Decoder(list[kind]).decode
    raw_of = operator.attrgetter(f"dynamodb.{image}")
    value_of = operator.attrgetter(".".join(["at"] * len(names)))

    def condition(records: Sequence[WireRecord], places: Sequence[int]) -> list[int]:
        raws = [raw_of(records[place]) or b"{}" for place in places]
        return holds(places, map(value_of, decode(b"[%b]" % b",".join(raws))))

    return condition


def _texts(accepted: Any) -> set[str]:
    """The texts that are accepted; none where something else is, too."""
    are_texts = isinstance(accepted, list | tuple) and all(isinstance(e, str) for e in accepted)
    return set(accepted) if are_texts else set()


def _among(accepted: Sequence[Any]) -> _Holds | None:
    """One of some texts, or of their beginnings."""
    if texts := _texts(accepted):
        return lambda places, found: [
            place for place, text in zip(places, found, strict=True) if text in texts
        ]
    begins = [each.get("prefix") if isinstance(each, Mapping) else each for each in accepted]
    if not (prefixes := tuple(_texts(begins))):
        return None
    return lambda places, found: [
        place for place, text in zip(places, found, strict=True) if text.startswith(prefixes)
    ]


def _numbers(accepted: Sequence[Any]) -> _Holds | None:
    """From the least number that is accepted to the greatest.

    As floats, which keep the order of what they round.
    """
    ranges = [_range(each) for each in accepted]
    if not ranges or None in ranges:
        return None
    low, high = min(each[0] for each in ranges if each), max(each[1] for each in ranges if each)
    return lambda places, found: [
        place for place, text in zip(places, found, strict=True) if low <= float(text) <= high
    ]


def _range(each: Any) -> tuple[float, float] | None:
    """What lies between the bounds, with them."""
    words = each.get("numeric") if isinstance(each, Mapping) else ["=", each]
    if not words or isinstance(words[1], bool) or not isinstance(words[1], int | float | Decimal):
        return None
    low, high = -math.inf, math.inf
    for sign, bound in zip(words[::2], words[1::2], strict=True):
        if sign[0] in ">=":
            low = float(str(bound))
        if sign[0] in "<=":
            high = float(str(bound))
    return low, high
