"""Lambda's filter patterns: JSON that describes the records to keep.

A pattern has a record's shape in Lambda, with a list of accepted values where the record has one:
values in a list are alternatives, fields beside each other must all match.
https://docs.aws.amazon.com/lambda/latest/dg/invocation-eventfiltering.html

A pattern means the same here as in Lambda, with two additions: numbers also match DynamoDB's,
which the wire has as text (`{"N": [{"numeric": [">", 5]}]}`), and `exists` also works on a field
that is no leaf (`{"NewImage": {"status": [{"exists": true}]}}`).
"""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

from watcher.errors import UsageError
from watcher.records.diff import ABSENT, Absent, to_number
from watcher.records.wire import WireRecord

Decoder: TypeAlias = Callable[[Sequence[str]], Callable[[msgspec.Raw], dict[str, Any]]]
"""Makes the decoder of an item's named attributes."""


class ImageDecoder:
    """Decodes one of a record's images once for all tests that look at it in turn.

    It decodes only the attributes that patterns name, in a fifth of the time.
    """

    def __init__(self, name: str, patterns: Iterable[Any], decoder: Decoder) -> None:
        self._name = name
        # One attribute: threads of several shards share this object, and replace both at once.
        self._last: tuple[object, dict[str, Any] | Absent] = None, ABSENT
        self._decode = decoder(sorted(set(_attributes_named(patterns, name))))

    def __call__(self, change: object) -> dict[str, Any] | Absent:
        """Returns the image of a `WireChange`; ABSENT where there is none."""
        raw = getattr(change, self._name)
        last = self._last
        if raw is not last[0]:
            last = self._last = raw, self._decode(raw) if raw else ABSENT
        return last[1]


def _attributes_named(parts: object, image: str, level: str = "record") -> Iterator[str]:
    """Yields the attributes of an image that parts of patterns name."""
    for part in parts if isinstance(parts, list | tuple) else ():
        for name, inner in part.items() if isinstance(part, Mapping) else ():
            if name == "$or":
                yield from _attributes_named(inner, image, level)
            elif level == "image":
                yield name
            elif (level, name) == ("record", "dynamodb"):
                yield from _attributes_named([inner], image, "change")
            elif (level, name) == ("change", image):
                yield from _attributes_named([inner], image, "image")


def attributes_decoder(names: Sequence[str]) -> Callable[[msgspec.Raw], dict[str, Any]]:
    """Returns a decoder of an item's named attributes; of all where a name fits no struct.

    They are a struct's fields, so that msgspec leaves the others undecoded.
    """
    fields = [(f"_{index}", Any, ABSENT) for index in range(len(names))]
    try:
        struct = msgspec.defstruct(
            "Named", fields, rename=dict(zip((f[0] for f in fields), names, strict=True)), gc=False
        )
        decode: Callable[[msgspec.Raw], Any] = msgspec.json.Decoder(struct).decode
    except (ValueError, UnicodeError):  # a name with a quote or a backslash
        return msgspec.json.decode

    if len(names) == 1:
        (only,) = names

        def alone(raw: msgspec.Raw) -> dict[str, Any]:
            value = decode(raw)._0
            return {} if value is ABSENT else {only: value}

        return alone

    def decoded(raw: msgspec.Raw) -> dict[str, Any]:
        values = zip(names, msgspec.structs.astuple(decode(raw)), strict=True)
        return {name: value for name, value in values if value is not ABSENT}

    return decoded


_IMAGES = ("Keys", "NewImage", "OldImage")
Test: TypeAlias = Callable[[Any], bool]
Pattern: TypeAlias = Mapping[str, Any]

# The fields that each level of a pattern may have, and the level below each field.
# `image` has fields of any name; the rest are leaves, `numeral` one whose text is a number.
_LEVELS: Final[dict[str, dict[str, str]]] = {
    "record": {
        **dict.fromkeys(("eventID", "eventName", "eventSource", "eventVersion", "awsRegion"), ""),
        "dynamodb": "change",
        "userIdentity": "identity",
    },
    "change": {
        **dict.fromkeys(("Keys", "NewImage", "OldImage"), "image"),
        **dict.fromkeys(("ApproximateCreationDateTime", "SizeBytes"), ""),
        **dict.fromkeys(("SequenceNumber", "StreamViewType"), ""),
    },
    "identity": {"type": "", "principalId": ""},
    "value": {
        **dict.fromkeys(("S", "SS", "B", "BS", "BOOL", "NULL"), ""),
        **dict.fromkeys(("N", "NS"), "numeral"),
        "M": "image",
        "L": "value",
    },
}
_LEAVES: Final = ("", "numeral")
_OPERATORS: Final = (
    *("anything-but", "equals-ignore-case", "exists", "numeric", "prefix", "suffix"),
)
_COMPARISONS: Final[dict[str, Callable[[Decimal, Decimal], bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compile_patterns(patterns: Sequence[Pattern], *, decoder: Decoder = attributes_decoder) -> Test:
    """Returns the test whether a `WireRecord` matches one of the patterns. Raises UsageError."""
    images = {name: ImageDecoder(name, patterns, decoder) for name in _IMAGES}
    tests = [_object(pattern, "record", "", images) for pattern in patterns]
    return tests[0] if len(tests) == 1 else lambda record: any(test(record) for test in tests)


def _object(pattern: object, level: str, path: str, images: Mapping[str, ImageDecoder]) -> Test:
    """Returns the test that all of an object's fields match."""
    if not isinstance(pattern, Mapping):
        raise UsageError(f"{path or 'pattern'}: not a JSON object")
    if not pattern:
        raise UsageError(f"{path or 'pattern'}: empty; name a field")
    tests: list[Test] = []
    for name, part in pattern.items():
        inner = f"{path}.{name}" if path else name
        if name == "$or":
            tests.append(_or(part, level, inner, images))
        else:
            kind = _kind(name, level, path)
            test = _part(part, kind, inner, images)
            tests.append(_field(name, level, test, images, _is_absence(part)))
    if len(tests) == 1:
        return tests[0]
    return lambda value: all(test(value) for test in tests)


def _or(parts: object, level: str, path: str, images: Mapping[str, ImageDecoder]) -> Test:
    if not isinstance(parts, list | tuple) or not parts:
        raise UsageError(f"{path}: not a list of objects")
    tests = [_object(part, level, f"{path}[{index}]", images) for index, part in enumerate(parts)]
    return lambda value: any(test(value) for test in tests)


def _kind(name: str, level: str, path: str) -> str:
    """Returns the level below a field. Raises UsageError for an unknown field."""
    if level == "image":
        return "value"
    known = _LEVELS[level]
    if name in known:
        return known[name]
    if (level, name) == ("record", "eventSourceARN"):
        raise UsageError("eventSourceARN: all records are of the stream that you name")
    advice = {
        "record": "",
        "value": 'an attribute\'s value stands under its type, as in {"S": ["open"]}',
    }.get(level, "")
    return refuse(
        path,
        f'unknown {"type" if level == "value" else "field"} "{name}"',
        name,
        known,
        advice,
    )


def _part(part: object, kind: str, path: str, images: Mapping[str, ImageDecoder]) -> Test:
    if isinstance(part, list | tuple):
        return _leaf(part, kind, path)
    if kind in _LEAVES:
        shown = "[…]" if isinstance(part, Mapping) else f"[{json.dumps(part, default=str)}]"
        raise UsageError(f"{path}: put the accepted values into a list: {shown}")
    return _object(part, kind, path, images)


def _is_absence(part: object) -> bool:
    """Returns True for a part that only asks for something to be absent."""
    if isinstance(part, Mapping) and len(part) == 1 and "$or" not in part:
        return _is_absence(next(iter(part.values())))
    return isinstance(part, list | tuple) and list(part) == [{"exists": False}]


def _field(
    name: str, level: str, test: Test, images: Mapping[str, ImageDecoder], absence: bool = False
) -> Test:
    """Returns a test that applies another one to a field of its value.

    Of a list, one element has to pass; an absence has to hold in all of them.
    """
    if level == "change" and name in images:
        image = images[name]
        return lambda change: test(image(change))
    if level in ("record", "change"):
        get = operator.attrgetter(name)
        return lambda wire: test(ABSENT if (value := get(wire)) is None else value)
    # The names in the wire's user identity begin with capitals, Lambda's do not.
    other = name[0].upper() + name[1:] if level == "identity" else name

    def look(value: object) -> bool:
        if isinstance(value, dict):
            return test(value[name] if name in value else value.get(other, ABSENT))
        if isinstance(value, list) and value:
            return (all if absence else any)(look(element) for element in value)
        return test(ABSENT)

    return look


# Leaves


def _leaf(accepted: Sequence[object], kind: str, path: str) -> Test:
    """Returns the test that a value, or one of its elements, is among those accepted."""
    if not accepted:
        raise UsageError(f"{path}: empty; give at least one value")
    tests = []
    for index, each in enumerate(accepted):
        at = f"{path}[{index}]"
        if kind not in _LEAVES and not (isinstance(each, Mapping) and "exists" in each):
            raise UsageError(
                f"{at}: only exists can stand here; "
                'a value stands under its type, as in {"S": ["open"]}'
            )
        tests.append(_accepted(each, kind == "numeral", at))
    if len(tests) == 1:
        return tests[0]
    return lambda value: any(test(value) for test in tests)


def _accepted(each: object, numeral: bool, path: str) -> Test:
    if not isinstance(each, Mapping):
        return _any_element(_equals(each, numeral, path))
    if len(each) != 1:
        raise UsageError(f"{path}: give one operator")
    ((name, argument),) = each.items()
    at = f"{path}.{name}"
    match name:
        case "exists":
            if not isinstance(argument, bool):
                raise UsageError(f"{at}: give true or false")
            return lambda value: (value is not ABSENT) is argument
        case "numeric":
            return _any_element(_numeric(argument, numeral, at))
        case "anything-but":
            return _any_element(_anything_but(argument, numeral, at))
        case "prefix" | "suffix" | "equals-ignore-case":
            return _any_element(_text(name, argument, at))
    return refuse(path, f'unknown operator "{name}"', name, _OPERATORS)


def _any_element(test: Test) -> Test:
    """Returns a test of a scalar, or of any element of a list; an absent value never passes."""

    def look(value: object) -> bool:
        if isinstance(value, list):
            return any(look(element) for element in value)
        return value is not ABSENT and not isinstance(value, dict) and test(value)

    return look


def _equals(literal: object, numeral: bool, path: str) -> Test:
    if literal is None or isinstance(literal, bool):
        return lambda value: value is literal
    if isinstance(literal, str):
        return lambda value: bool(value == literal)
    if isinstance(literal, int | float | Decimal):
        number, read = _finite(literal, path), _reader(numeral)
        return lambda value: read(value) == number
    raise UsageError(f"{path}: give a string, a number, true, false or null")


def _finite(literal: int | float | Decimal, path: str) -> Decimal:
    number = Decimal(str(literal))
    if not number.is_finite():
        raise UsageError(f"{path}: not a number that DynamoDB has")
    return number


def _numeric(argument: object, numeral: bool, path: str) -> Test:
    """Returns the test of a comparison: `["=", 5]`, `[">", 0]`, `[">=", 0, "<", 10]`."""
    advice = 'give comparisons such as ["=", 5] or [">", 0, "<=", 10]'
    if not isinstance(argument, list | tuple) or len(argument) not in (2, 4):
        raise UsageError(f"{path}: {advice}")
    comparisons = []
    for name, bound in zip(argument[::2], argument[1::2], strict=True):
        known = isinstance(name, str) and name in _COMPARISONS
        if not known or isinstance(bound, bool) or not isinstance(bound, int | float | Decimal):
            raise UsageError(f"{path}: {advice}")
        comparisons.append((_COMPARISONS[name], _finite(bound, path)))
    if len(argument) == 4 and (argument[0][0], argument[2][0]) not in ((">", "<"), ("<", ">")):
        raise UsageError(f"{path}: {advice}")
    read = _reader(numeral)

    def test(value: object) -> bool:
        number = read(value)
        if number is None:
            return False
        for compare, to in comparisons:  # noqa: SIM110  all() takes a fifth longer
            if not compare(number, to):
                return False
        return True

    return test


def _text(name: str, argument: object, path: str) -> Test:
    """Returns the test of prefix, suffix or equals-ignore-case, which the first two may contain."""
    if name != "equals-ignore-case" and isinstance(argument, Mapping):
        if list(argument) != ["equals-ignore-case"]:
            raise UsageError(f"{path}: only equals-ignore-case can stand here")
        inner = _text(name, _lower(argument["equals-ignore-case"], path), path)
        return lambda value: isinstance(value, str) and inner(value.lower())
    if not isinstance(argument, str):
        raise UsageError(f"{path}: give a string")
    if name == "prefix":
        return lambda value: isinstance(value, str) and value.startswith(argument)
    if name == "suffix":
        return lambda value: isinstance(value, str) and value.endswith(argument)
    lowered = argument.lower()
    return lambda value: isinstance(value, str) and value.lower() == lowered


def _lower(argument: object, path: str) -> str:
    if not isinstance(argument, str):
        raise UsageError(f"{path}.equals-ignore-case: give a string")
    return argument.lower()


def _anything_but(argument: object, numeral: bool, path: str) -> Test:
    """Returns the test that a value is present and is none of these values, prefixes, suffixes."""
    make: Callable[[Any, str], Test]
    if isinstance(argument, Mapping):
        names = ("prefix", "suffix", "equals-ignore-case")
        if len(argument) != 1 or (name := next(iter(argument))) not in names:
            raise UsageError(f"{path}: give values, or one of {', '.join(names)}")
        argument, path = argument[name], f"{path}.{name}"

        def make(each: object, at: str) -> Test:
            return _text(name, each, at)
    else:

        def make(each: object, at: str) -> Test:
            return _equals(each, numeral, at)

    several = argument if isinstance(argument, list | tuple) else [argument]
    if not several:
        raise UsageError(f"{path}: empty; give at least one value")
    tests = [make(each, f"{path}[{index}]") for index, each in enumerate(several)]
    return lambda value: not any(test(value) for test in tests)


def _reader(numeral: bool) -> Callable[[Any], Decimal | None]:
    """Returns the conversion of a number: DynamoDB's are text, others are JSON's."""
    return _numeral if numeral else _plain_number


def _plain_number(value: object) -> Decimal | None:
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return Decimal(str(value)) if is_number else None


def _numeral(value: object) -> Decimal | None:
    made = to_number(value) if isinstance(value, str) else None
    return made if isinstance(made, Decimal) else None


def refuse(path: str, text: str, word: str, known: Iterable[str], advice: str = "") -> NoReturn:
    """Raises UsageError for an unknown word, with a suggestion."""
    known = list(known)
    near = difflib.get_close_matches(word, known, 1)
    advice = f'did you mean "{near[0]}"?' if near else advice or f"use {', '.join(known)}"
    raise UsageError(f"{path}: {text}; {advice}" if path else f"{text}; {advice}")


Condition: TypeAlias = Callable[[Sequence[WireRecord], Sequence[int]], Sequence[int]]
_Holds: TypeAlias = Callable[[Sequence[int], Iterable[str]], list[int]]

_NO_NUMBER = "nan"  # lies in no range


class Prefilter:
    """Finds the records that a single pattern may match, a page at a time; the rest can't match."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._conditions = list(_conditions(patterns[0])) if len(patterns) == 1 else []

    def __call__(self, records: Sequence[WireRecord]) -> Sequence[int]:
        """Returns the indexes that are left; a condition that fails on odd data leaves out none."""
        indexes: Sequence[int] = range(len(records))
        for condition in self._conditions:
            with contextlib.suppress(ValueError, msgspec.DecodeError):
                indexes = condition(records, indexes)
        return indexes


def _conditions(pattern: Pattern) -> Iterator[Condition]:
    """Yields conditions that every match fulfils."""
    if texts := _texts(pattern.get("eventName")):
        yield _of_kind(texts)
    change = pattern.get("dynamodb")
    images = change if isinstance(change, Mapping) else {}
    for image in _IMAGES:
        for names, accepted in _leaves(images.get(image)):
            holds = _numbers(accepted) if names[-1] == "N" else None
            if holds := holds or _among(accepted):
                # A name may have a quote or a backslash, or be no text that JSON has.
                with contextlib.suppress(ValueError, UnicodeError):
                    yield _of_value(image, names, holds)


def _leaves(part: object, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the accepted values, each with its path: attribute, type, attribute, type…

    Lists are left out, as any of their elements may match.
    """
    if isinstance(part, Mapping):
        for name, inner in part.items():
            if name != "$or":
                yield from _leaves(inner, (*names, name))
    elif len(names) % 2 == 0 and names and {*names[1:-1:2]} <= {"M"} and names[-1] in "SNB":
        yield names, part


def _of_kind(kinds: set[str]) -> Condition:
    return lambda records, indexes: [each for each in indexes if records[each].eventName in kinds]


def _of_value(image: str, names: Sequence[str], holds: _Holds) -> Condition:
    """Returns a condition on one value; the rest of each image stays undecoded."""
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

    def condition(records: Sequence[WireRecord], indexes: Sequence[int]) -> list[int]:
        raws = [raw_of(records[index]) or b"{}" for index in indexes]
        return holds(indexes, map(value_of, decode(b"[%b]" % b",".join(raws))))

    return condition


def _texts(accepted: object) -> set[str]:
    """Returns the accepted texts; none where anything else is accepted, too."""
    if not isinstance(accepted, list | tuple):
        return set()
    return set(accepted) if all(isinstance(each, str) for each in accepted) else set()


def _among(accepted: Sequence[object]) -> _Holds | None:
    """Returns the condition that a value is one of some texts, or begins with one."""
    if texts := _texts(accepted):
        return lambda indexes, found: [
            index for index, text in zip(indexes, found, strict=True) if text in texts
        ]
    begins = [each.get("prefix") if isinstance(each, Mapping) else each for each in accepted]
    if not (prefixes := tuple(_texts(begins))):
        return None
    return lambda indexes, found: [
        index for index, text in zip(indexes, found, strict=True) if text.startswith(prefixes)
    ]


def _numbers(accepted: Sequence[object]) -> _Holds | None:
    """Returns the condition that a value lies between the least and the greatest number accepted.

    It compares floats: rounding keeps the order.
    """
    ranges = [_range(each) for each in accepted]
    if not ranges or None in ranges:
        return None
    low, high = min(each[0] for each in ranges if each), max(each[1] for each in ranges if each)
    return lambda indexes, found: [
        index for index, text in zip(indexes, found, strict=True) if low <= float(text) <= high
    ]


def _range(each: object) -> tuple[float, float] | None:
    """Returns the bounds of a comparison; None for anything else."""
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
