"""Lambda's filter patterns: JSON that says which records are wanted.

A pattern has a record's shape in Lambda, with a list of accepted values where the record has one:
values in a list are alternatives, fields beside each other must all match.
https://docs.aws.amazon.com/lambda/latest/dg/invocation-eventfiltering.html

Patterns that Lambda accepts mean the same here, but for two: numbers also match DynamoDB's numbers,
which the wire has as text (`{"N": [{"numeric": [">", 5]}]}`), and `exists` also sees what is not a
leaf (`{"NewImage": {"status": [{"exists": true}]}}`).
"""

from __future__ import annotations

import difflib
import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NoReturn, TypeAlias

from watcher.errors import UsageError
from watcher.record.compare import ABSENT, to_number
from watcher.record.named import Image

Test: TypeAlias = Callable[[Any], bool]
Pattern: TypeAlias = Mapping[str, Any]

# What may stand where in a pattern: the fields of an object, and what each of them is in turn.
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


def matcher(patterns: Sequence[Pattern]) -> Test:
    """Whether a `WireRecord` matches one of the patterns. Raises UsageError for a bad one."""
    images = {name: Image(name, patterns) for name in ("Keys", "NewImage", "OldImage")}
    tests = [_object(pattern, "record", "", images) for pattern in patterns]
    return tests[0] if len(tests) == 1 else lambda record: any(test(record) for test in tests)


def _object(pattern: Any, level: str, place: str, images: Mapping[str, Image]) -> Test:
    """All of an object's fields match."""
    if not isinstance(pattern, Mapping):
        raise UsageError(f"{place or 'pattern'}: not a JSON object")
    if not pattern:
        raise UsageError(f"{place or 'pattern'}: empty; name a field")
    tests: list[Test] = []
    for name, part in pattern.items():
        inner = f"{place}.{name}" if place else name
        if name == "$or":
            tests.append(_or(part, level, inner, images))
        else:
            kind = _kind(name, level, place)
            test = _part(part, kind, inner, images)
            tests.append(_field(name, level, test, images, _is_absence(part)))
    if len(tests) == 1:
        return tests[0]
    return lambda value: all(test(value) for test in tests)


def _or(parts: Any, level: str, place: str, images: Mapping[str, Image]) -> Test:
    if not isinstance(parts, list | tuple) or not parts:
        raise UsageError(f"{place}: not a list of objects")
    tests = [_object(part, level, f"{place}[{index}]", images) for index, part in enumerate(parts)]
    return lambda value: any(test(value) for test in tests)


def _kind(name: str, level: str, place: str) -> str:
    """What a field is, one level further down."""
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
        place,
        f'unknown {"type" if level == "value" else "field"} "{name}"',
        name,
        known,
        advice,
    )


def _part(part: Any, kind: str, place: str, images: Mapping[str, Image]) -> Test:
    if isinstance(part, list | tuple):
        return _leaf(part, kind, place)
    if kind in _LEAVES:
        shown = "[…]" if isinstance(part, Mapping) else f"[{json.dumps(part, default=str)}]"
        raise UsageError(f"{place}: put the accepted values into a list: {shown}")
    return _object(part, kind, place, images)


def _is_absence(part: Any) -> bool:
    """Whether a part asks for nothing but that something is absent."""
    if isinstance(part, Mapping) and len(part) == 1 and "$or" not in part:
        return _is_absence(next(iter(part.values())))
    return isinstance(part, list | tuple) and list(part) == [{"exists": False}]


def _field(
    name: str, level: str, test: Test, images: Mapping[str, Image], absence: bool = False
) -> Test:
    """The test on a field of what it is given.

    Where that is a list: of one of its elements, but what is to be absent has to be so in all.
    """
    if level == "change" and name in images:
        image = images[name]
        return lambda change: test(image(change))
    if level in ("record", "change"):
        get = operator.attrgetter(name)
        return lambda wire: test(ABSENT if (value := get(wire)) is None else value)
    # The wire's user identity begins its names with capitals, Lambda's does not.
    other = name[0].upper() + name[1:] if level == "identity" else name

    def look(value: Any) -> bool:
        if isinstance(value, dict):
            return test(value[name] if name in value else value.get(other, ABSENT))
        if isinstance(value, list) and value:
            return (all if absence else any)(look(element) for element in value)
        return test(ABSENT)

    return look


# Leaves


def _leaf(accepted: Sequence[Any], kind: str, place: str) -> Test:
    """The value, or one of its elements, is among those accepted."""
    if not accepted:
        raise UsageError(f"{place}: empty; give at least one value")
    tests = []
    for index, each in enumerate(accepted):
        at = f"{place}[{index}]"
        if kind not in _LEAVES and not (isinstance(each, Mapping) and "exists" in each):
            raise UsageError(
                f"{at}: only exists can stand here; "
                'a value stands under its type, as in {"S": ["open"]}'
            )
        tests.append(_accepted(each, kind == "numeral", at))
    if len(tests) == 1:
        return tests[0]
    return lambda value: any(test(value) for test in tests)


def _accepted(each: Any, numeral: bool, place: str) -> Test:
    if not isinstance(each, Mapping):
        return _any_element(_equals(each, numeral, place))
    if len(each) != 1:
        raise UsageError(f"{place}: give one operator")
    ((name, argument),) = each.items()
    at = f"{place}.{name}"
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
    return refuse(place, f'unknown operator "{name}"', name, _OPERATORS)


def _any_element(test: Test) -> Test:
    """The test on a scalar, or on one of a list's elements; what is absent never matches."""

    def look(value: Any) -> bool:
        if isinstance(value, list):
            return any(look(element) for element in value)
        return value is not ABSENT and not isinstance(value, dict) and test(value)

    return look


def _equals(literal: Any, numeral: bool, place: str) -> Test:
    if literal is None or isinstance(literal, bool):
        return lambda value: value is literal
    if isinstance(literal, str):
        return lambda value: bool(value == literal)
    if isinstance(literal, int | float | Decimal):
        number, read = _finite(literal, place), _reader(numeral)
        return lambda value: read(value) == number
    raise UsageError(f"{place}: give a string, a number, true, false or null")


def _finite(literal: int | float | Decimal, place: str) -> Decimal:
    number = Decimal(str(literal))
    if not number.is_finite():
        raise UsageError(f"{place}: not a number that DynamoDB has")
    return number


def _numeric(argument: Any, numeral: bool, place: str) -> Test:
    """`["=", 5]`, `[">", 0]`, `[">=", 0, "<", 10]`."""
    advice = 'give comparisons such as ["=", 5] or [">", 0, "<=", 10]'
    if not isinstance(argument, list | tuple) or len(argument) not in (2, 4):
        raise UsageError(f"{place}: {advice}")
    comparisons = []
    for name, bound in zip(argument[::2], argument[1::2], strict=True):
        known = isinstance(name, str) and name in _COMPARISONS
        if not known or isinstance(bound, bool) or not isinstance(bound, int | float | Decimal):
            raise UsageError(f"{place}: {advice}")
        comparisons.append((_COMPARISONS[name], _finite(bound, place)))
    if len(argument) == 4 and (argument[0][0], argument[2][0]) not in ((">", "<"), ("<", ">")):
        raise UsageError(f"{place}: {advice}")
    read = _reader(numeral)

    def test(value: Any) -> bool:
        number = read(value)
        if number is None:
            return False
        for compare, to in comparisons:  # noqa: SIM110  all() takes a fifth longer
            if not compare(number, to):
                return False
        return True

    return test


def _text(name: str, argument: Any, place: str) -> Test:
    """prefix, suffix, equals-ignore-case; the first two take the last one for their own text."""
    if name != "equals-ignore-case" and isinstance(argument, Mapping):
        if list(argument) != ["equals-ignore-case"]:
            raise UsageError(f"{place}: only equals-ignore-case can stand here")
        inner = _text(name, _lower(argument["equals-ignore-case"], place), place)
        return lambda value: isinstance(value, str) and inner(value.lower())
    if not isinstance(argument, str):
        raise UsageError(f"{place}: give a string")
    if name == "prefix":
        return lambda value: isinstance(value, str) and value.startswith(argument)
    if name == "suffix":
        return lambda value: isinstance(value, str) and value.endswith(argument)
    lowered = argument.lower()
    return lambda value: isinstance(value, str) and value.lower() == lowered


def _lower(argument: Any, place: str) -> str:
    if not isinstance(argument, str):
        raise UsageError(f"{place}.equals-ignore-case: give a string")
    return argument.lower()


def _anything_but(argument: Any, numeral: bool, place: str) -> Test:
    """Present, and none of these: values, or prefixes, suffixes, words in any case."""
    make: Callable[[Any, str], Test]
    if isinstance(argument, Mapping):
        names = ("prefix", "suffix", "equals-ignore-case")
        if len(argument) != 1 or (name := next(iter(argument))) not in names:
            raise UsageError(f"{place}: give values, or one of {', '.join(names)}")
        argument, place = argument[name], f"{place}.{name}"

        def make(each: Any, at: str) -> Test:
            return _text(name, each, at)
    else:

        def make(each: Any, at: str) -> Test:
            return _equals(each, numeral, at)

    several = argument if isinstance(argument, list | tuple) else [argument]
    if not several:
        raise UsageError(f"{place}: empty; give at least one value")
    tests = [make(each, f"{place}[{index}]") for index, each in enumerate(several)]
    return lambda value: not any(test(value) for test in tests)


def _reader(numeral: bool) -> Callable[[Any], Decimal | None]:
    """How a number is read: DynamoDB's are text, others are JSON's."""
    return _numeral if numeral else _plain_number


def _plain_number(value: Any) -> Decimal | None:
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return Decimal(str(value)) if is_number else None


def _numeral(value: Any) -> Decimal | None:
    made = to_number(value) if isinstance(value, str) else None
    return made if isinstance(made, Decimal) else None


def refuse(place: str, text: str, word: str, known: Iterable[str], advice: str = "") -> NoReturn:
    """Raise UsageError for an unknown word, with the near one if there is one."""
    known = list(known)
    near = difflib.get_close_matches(word, known, 1)
    advice = f'did you mean "{near[0]}"?' if near else advice or f"use {', '.join(known)}"
    raise UsageError(f"{place}: {text}; {advice}" if place else f"{text}; {advice}")
