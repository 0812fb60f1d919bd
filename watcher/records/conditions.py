"""Conditions on records: what conditions in one line, Lambda's patterns and options become.

A condition is a tree. Compiled, it decodes only the attributes that it names, and tells most of a
page's records apart without a look at each.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from watcher.aws.json_text import read
from watcher.records.diff import ABSENT
from watcher.records.wire import WireFilter, WireRecord

Value: TypeAlias = Any
"""A value as the wire has it, `{"N": "5"}`; ABSENT where a record lacks it."""


class Place(NamedTuple):
    """The place of a value: an image, then names in maps and indexes in lists; none for all of it.

    The image `item` is `new`, or `old` of a removed item, or the `key` where there are no images;
    `element` is an element of the list that an `OfElements` looks at.
    """

    image: str
    steps: tuple[str | int, ...] = ()


class Constant(NamedTuple):
    """A value that the condition itself has."""

    value: Value


class Computed(NamedTuple):
    """A value that a function makes of another one."""

    function: Callable[[Value], Value]
    of: Operand


Operand: TypeAlias = Place | Constant | Computed


class Texts(NamedTuple):
    """A bound: a content of this kind is one of the texts, or begins with one."""

    kind: str
    texts: tuple[str, ...]
    whole: bool


class Range(NamedTuple):
    """A bound: a number lies between these, both included. As floats: rounding keeps the order."""

    low: float = -math.inf
    high: float = math.inf


Bound: TypeAlias = Texts | Range


def union(bounds: Sequence[Bound | None]) -> Bound | None:
    """Returns the bound of what is in any of these; None where that is not one bound."""
    ranges = [each for each in bounds if isinstance(each, Range)]
    if ranges and len(ranges) == len(bounds):
        return Range(min(each.low for each in ranges), max(each.high for each in ranges))
    texts = [each for each in bounds if isinstance(each, Texts)]
    if not texts or len(texts) < len(bounds) or len({each.kind for each in texts}) > 1:
        return None
    several = tuple(text for each in texts for text in each.texts)
    return Texts(texts[0].kind, several, all(each.whole for each in texts))


class Test(NamedTuple):
    """A test of one or several values."""

    holds: Callable[..., bool]
    operands: tuple[Operand, ...]
    bound: Bound | None = None
    """Where the first operand is if the test holds."""


class OfRecord(NamedTuple):
    """A test of a record's fields, its images undecoded."""

    holds: WireFilter
    kinds: frozenset[str] | None = None
    """The kinds of change of which it holds; None: any."""


class OfElements(NamedTuple):
    """A condition on a list's elements: it holds for one, or for `every`; an empty list has none.

    The one element of a list that is empty, or is no list, is ABSENT.
    """

    path: Place
    part: Condition
    every: bool


class All(NamedTuple):
    """All of the parts hold."""

    parts: tuple[Condition, ...]


class AnyOf(NamedTuple):
    """One of the parts holds."""

    parts: tuple[Condition, ...]


class Not(NamedTuple):
    """The part does not hold."""

    part: Condition


Condition: TypeAlias = Test | OfRecord | OfElements | All | AnyOf | Not


def compiled(condition: Condition) -> WireFilter:
    """Returns the test of a record."""
    return _closure(condition, _images(condition))


# Images

_FIELDS: Final = {"new": "NewImage", "old": "OldImage", "key": "Keys"}
_Decode: TypeAlias = Callable[[msgspec.Raw], Mapping[str, Value]]
_Seen: TypeAlias = Value
"""A record; or, in the part of an `OfElements`, an element's value."""
_Images: TypeAlias = Mapping[str, Callable[[_Seen], Value]]
"""What finds an image's attributes; ABSENT where there is none."""


class _Image:
    """Decodes one of a record's images once for all tests that look at it in turn."""

    def __init__(self, field: str, decode: _Decode) -> None:
        self._field = field
        self._decode = decode
        # One attribute: threads of several shards share this object, and replace both at once.
        self._last: tuple[object, Value] = None, ABSENT

    def __call__(self, record: WireRecord) -> Value:
        raw: msgspec.Raw = getattr(record.dynamodb, self._field)
        last = self._last
        if raw is not last[0]:
            last = self._last = raw, self._decode(raw) if raw else ABSENT
        return last[1]


def _images(condition: Condition) -> _Images:
    """Returns the images; of each one stays undecoded what the condition does not name there."""
    named = list(places(condition))
    found = {}
    for image, field in _FIELDS.items():
        steps = [path.steps for path in named if path.image in (image, "item")]
        names = sorted({str(each[0]) for each in steps if each})
        found[image] = _Image(field, attributes_decoder(names) if all(steps) else _whole)
    new, old, key = found.values()

    def item(record: WireRecord) -> Value:
        change = record.dynamodb
        return (new if change.NewImage else old if change.OldImage else key)(record)

    return {**found, "item": item}


def places(part: Condition | Operand) -> Iterator[Place]:
    """Yields the places that a condition looks at."""
    match part:
        case Place():
            yield part
        case Test(_, several) | All(several) | AnyOf(several):
            for each in several:
                yield from places(each)
        case Not(inner) | Computed(_, inner):
            yield from places(inner)
        case OfElements(path, inner):
            yield path
            yield from places(inner)


_any_item = msgspec.json.Decoder(dict[str, Any])


def _whole(raw: msgspec.Raw) -> Mapping[str, Value]:
    return read(_any_item, raw)


def attributes_decoder(names: Sequence[str]) -> _Decode:
    """Returns a decoder of an item's named attributes; of all where a name fits no struct.

    They are a struct's fields, so msgspec leaves the others undecoded, in a fifth of the time.
    """
    fields = [(f"_{index}", Any, ABSENT) for index in range(len(names))]
    try:
        struct: Any = msgspec.defstruct(
            "Named", fields, rename=dict(zip((f[0] for f in fields), names, strict=True)), gc=False
        )
    except (ValueError, UnicodeError):  # a name with a quote or a backslash
        return _whole
    decoder = msgspec.json.Decoder(struct)
    if len(names) == 1:
        (only,) = names

        def alone(raw: msgspec.Raw) -> Mapping[str, Value]:
            value = read(decoder, raw)._0
            return {} if value is ABSENT else {only: value}

        return alone

    def decoded(raw: msgspec.Raw) -> Mapping[str, Value]:
        values = zip(names, msgspec.structs.astuple(read(decoder, raw)), strict=True)
        return {name: value for name, value in values if value is not ABSENT}

    return decoded


# Tests of one record


def _closure(condition: Condition, images: _Images) -> Callable[[_Seen], bool]:
    match condition:
        case Test(holds, operands):
            values = [_value(each, images) for each in operands]
            if len(values) == 1:
                (only,) = values
                return lambda seen: holds(only(seen))
            return lambda seen: holds(*[value(seen) for value in values])
        case OfRecord(holds):
            return holds
        case OfElements(path, part, every):
            return _of_elements(_value(path, images), _closure(part, images), every=every)
        case Not(part):
            inner = _closure(part, images)
            return lambda seen: not inner(seen)
        case All((part,)) | AnyOf((part,)):
            return _closure(part, images)
        case All(parts):
            tests = [_closure(part, images) for part in parts]
            return lambda seen: all(test(seen) for test in tests)
        case AnyOf(parts):
            tests = [_closure(part, images) for part in parts]
            return lambda seen: any(test(seen) for test in tests)


def _of_elements(
    value: Callable[[_Seen], Value], holds: Callable[[_Seen], bool], *, every: bool
) -> Callable[[_Seen], bool]:
    hold = all if every else any

    def test(seen: _Seen) -> bool:
        found = value(seen)
        return hold(map(holds, (found.get("L") if found else None) or [ABSENT]))

    return test


def _value(operand: Operand, images: _Images) -> Callable[[_Seen], Value]:
    match operand:
        case Constant(value):
            return lambda seen: value
        case Computed(function, of):
            inner = _value(of, images)
            return lambda seen: function(inner(seen))
        case Place("element", steps):
            return lambda element: _at(element, steps)
        case Place(image, steps):
            return _of_image(images[image], steps)


def _of_image(
    image: Callable[[_Seen], Value], steps: Sequence[str | int]
) -> Callable[[_Seen], Value]:
    if not steps:
        return lambda record: ABSENT if (found := image(record)) is ABSENT else {"M": found}
    name, *more = steps

    def attribute(record: WireRecord) -> Value:
        found = image(record)
        return found.get(name, ABSENT) if found else ABSENT

    return (lambda record: _at(attribute(record), more)) if more else attribute


def _at(value: Value, steps: Sequence[str | int]) -> Value:
    for step in steps:
        try:
            value = value["M" if isinstance(step, str) else "L"][step]
        except (KeyError, IndexError, TypeError):
            return ABSENT
    return value


# Tests of a whole page

PageTest: TypeAlias = Callable[[Sequence[WireRecord], Sequence[int]], Sequence[int]]
_NO_NUMBER: Final = "nan"  # lies in no range


class Prefilter:
    """Finds the records that a condition may hold for, a page at a time; it fails for the rest."""

    def __init__(self, condition: Condition) -> None:
        self._tests = list(_page_tests(condition))

    def __call__(self, records: Sequence[WireRecord]) -> Sequence[int]:
        """Returns the indexes that are left; a test that fails on odd data leaves out none."""
        indexes: Sequence[int] = range(len(records))
        for test in self._tests:
            with contextlib.suppress(ValueError, msgspec.DecodeError):
                indexes = test(records, indexes)
        return indexes


def _page_tests(condition: Condition) -> Iterator[PageTest]:
    """Yields tests that hold wherever the condition does."""
    match condition:
        case All(parts) | AnyOf((_,) as parts):
            for part in parts:
                yield from _page_tests(part)
        case OfRecord(_, kinds) if kinds is not None:
            yield _of_kind(kinds)
        case Test(_, (Place(image, steps), *_), bound) if bound is not None and steps:
            if image != "element" and all(isinstance(step, str) for step in steps):
                # A name may have a quote or a backslash, or be no text that JSON has.
                with contextlib.suppress(ValueError, UnicodeError):
                    yield _of_value(image, [*map(str, steps)], bound)


def _of_kind(kinds: frozenset[str]) -> PageTest:
    return lambda records, indexes: [each for each in indexes if records[each].eventName in kinds]


def _of_value(image: str, steps: Sequence[str], bound: Bound) -> PageTest:
    """Returns the test of one value; the rest of each image stays undecoded."""
    kind: Any = str
    value: Any = _NO_NUMBER if isinstance(bound, Range) else ""
    names = [name for step in steps for name in (step, "M")]
    names[-1] = "N" if isinstance(bound, Range) else bound.kind
    for name in reversed(names):
        kind = msgspec.defstruct(
            "At", [("at", kind, value)], rename={"at": name}, frozen=True, gc=False
        )
        value = kind()
    decode = msgspec.json.Decoder(list[kind]).decode
    raw_of = _raw_item if image == "item" else operator.attrgetter(f"dynamodb.{_FIELDS[image]}")
    value_of = operator.attrgetter(".".join(["at"] * len(names)))
    holds = _bound_test(bound)

    def test(records: Sequence[WireRecord], indexes: Sequence[int]) -> list[int]:
        raws = [raw_of(records[index]) or b"{}" for index in indexes]
        return holds(zip(indexes, map(value_of, decode(b"[%b]" % b",".join(raws))), strict=True))

    return test


def _raw_item(record: WireRecord) -> msgspec.Raw:
    change = record.dynamodb
    return change.NewImage or change.OldImage or change.Keys


def _bound_test(bound: Bound) -> Callable[[Iterable[tuple[int, str]]], list[int]]:
    """Returns the choice of indexes by the texts beside them; a call a page, not a call a text."""
    if isinstance(bound, Range):
        low, high = bound
        return lambda found: [index for index, text in found if low <= float(text) <= high]
    texts = bound.texts
    if bound.whole:
        several = frozenset(texts)
        return lambda found: [index for index, text in found if text in several]
    return lambda found: [index for index, text in found if text.startswith(texts)]
