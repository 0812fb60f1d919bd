"""Lambda's filter patterns: JSON that describes the records to keep.

A pattern has a record's shape in Lambda, with a list of accepted values where the record has one:
values in a list are alternatives, fields beside each other must all match, and below `L` one
element has to match all of them.
https://docs.aws.amazon.com/lambda/latest/dg/invocation-eventfiltering.html

A pattern means the same here as in Lambda, with two additions: numbers also match DynamoDB's,
which the wire has as text (`{"N": [{"numeric": [">", 5]}]}`), and `exists` also works on a field
that is no leaf (`{"NewImage": {"status": [{"exists": true}]}}`).
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from watcher.errors import UsageError, did_you_mean
from watcher.records.conditions import (
    All,
    AnyOf,
    Bound,
    Condition,
    OfElements,
    OfRecord,
    Place,
    Range,
    Test,
    Texts,
    Value,
    union,
)
from watcher.records.diff import ABSENT, to_number

_Holds: TypeAlias = Callable[[Any], bool]
"""A test of a field's content; ABSENT where there is none."""
Pattern: TypeAlias = Mapping[str, Any]

# The fields that each level of a pattern may have, and the level below each field.
# `image` has fields of any name; what has no level below is a leaf.
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
        **dict.fromkeys(("S", "SS", "N", "NS", "B", "BS", "BOOL", "NULL"), ""),
        "M": "image",
        "L": "value",
    },
}
_IMAGES: Final = {"Keys": Place("key"), "NewImage": Place("new"), "OldImage": Place("old")}
_NUMERALS: Final = ("N", "NS")
"""The types of an attribute whose content is the text of a number."""
_COMPARISONS: Final[dict[str, Callable[[Decimal, Decimal], bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OF_TEXT: Final[dict[str, Callable[[str, str], bool]]] = {
    "prefix": str.startswith,
    "suffix": str.endswith,
    "equals-ignore-case": lambda value, text: value.lower() == text.lower(),
}
_OPERATORS: Final = ("anything-but", *_OF_TEXT, "exists", "numeric")


class _Leaf(NamedTuple):
    """The test that a list of accepted values becomes."""

    holds: _Holds
    bound: Bound | None = None
    """Where a value of the leaf's kind is if it passes; None: anywhere."""


def parse_pattern(pattern: object) -> Condition:
    """Returns the condition that a pattern describes. Raises UsageError with a mistake's place."""
    try:
        return _object(pattern, "record", "", Place("new"))
    except RecursionError:
        raise UsageError("the pattern has too many objects in one another") from None


def _object(pattern: object, level: str, path: str, place: Place) -> Condition:
    """Returns the condition that all of an object's fields match.

    At the levels of an image and of a value, that one stands at `place`.
    """
    if not isinstance(pattern, Mapping):
        raise UsageError(f"{path or 'pattern'}: not a JSON object")
    if not pattern:
        raise UsageError(f"{path or 'pattern'}: empty; name a field")
    return All(tuple(_field(name, part, level, path, place) for name, part in pattern.items()))


def _field(name: str, part: object, level: str, path: str, place: Place) -> Condition:
    at = f"{path}.{name}" if path else name
    if name == "$or":
        if not isinstance(part, list | tuple) or not part:
            raise UsageError(f"{at}: not a list of objects")
        several = enumerate(part)
        return AnyOf(tuple(_object(one, level, f"{at}[{each}]", place) for each, one in several))
    below = _level_below(name, level, path)
    if below == "image" and level == "change":
        place = _IMAGES[name]
    elif level == "image":
        place = Place(place.image, (*place.steps, name))
    if isinstance(part, list | tuple):
        leaf = _leaf(part, name, at, is_exists=below != "")
        return _of_content(name, level, place, leaf, part)
    if not below:
        shown = "[…]" if isinstance(part, Mapping) else f"[{json.dumps(part, default=str)}]"
        raise UsageError(f"{at}: put the accepted values into a list: {shown}")
    if (level, name) == ("value", "L") and part:
        return _of_elements(part, at, place)
    return _object(part, below, at, place)


def _level_below(name: str, level: str, path: str) -> str:
    """Returns the level below a field. Raises UsageError for an unknown field."""
    if level == "image":
        return "value"
    known = _LEVELS[level]
    if name in known:
        return known[name]
    if (level, name) == ("record", "eventSourceARN"):
        raise UsageError("eventSourceARN: all records are of the stream that you name")
    what, advice = "field", ""
    if level == "value":
        what = "type"
        advice = 'an attribute\'s value stands under its type, as in {"S": ["open"]}'
    return refuse(path, f'unknown {what} "{name}"', name, known, advice)


def _of_elements(part: object, path: str, place: Place) -> Condition:
    """Returns the condition on a list: one element matches, and what is absent is so in all."""
    halves = [(every, _of_absences(part, every)) for every in (True, False)]
    return All(
        tuple(
            OfElements(place, _object(half, "value", path, Place("element")), every)
            for every, half in halves
            if half is not None
        )
    )


def _of_absences(part: object, wanted: bool) -> object:
    """Returns the part of a pattern that asks for absences only, or else the other one, or None."""
    if not isinstance(part, Mapping) or not part:
        is_absence = isinstance(part, list | tuple) and list(part) == [{"exists": False}]
        return part if is_absence is wanted else None
    found = {
        name: (None if wanted else inner) if name == "$or" else _of_absences(inner, wanted)
        for name, inner in part.items()
    }
    return {name: inner for name, inner in found.items() if inner is not None} or None


def _of_content(
    name: str, level: str, place: Place, leaf: _Leaf, accepted: Sequence[object]
) -> Condition:
    """Returns the condition that a field's content passes a test."""
    holds = leaf.holds
    if level == "value":

        def of_kind(value: Value) -> bool:
            return holds(value.get(name, ABSENT) if value else ABSENT)

        return Test(of_kind, (place,), leaf.bound)
    if level == "image" or name in _IMAGES:
        return Test(holds, (place,))
    if level == "identity":
        # The names in the wire's user identity begin with capitals, Lambda's do not.
        other = name[0].upper() + name[1:]

        def of_identity(who: Mapping[str, str] | None) -> bool:
            found = who or {}
            return holds(found.get(name, found.get(other, ABSENT)))

        return OfRecord(lambda record: of_identity(record.userIdentity))
    content = operator.attrgetter(f"dynamodb.{name}" if level == "change" else name)
    texts = frozenset(each for each in accepted if isinstance(each, str))
    kinds = texts if name == "eventName" and len(texts) == len(accepted) else None
    return OfRecord(
        lambda record: holds(ABSENT if (found := content(record)) is None else found), kinds
    )


# Leaves


def _leaf(accepted: Sequence[object], name: str, path: str, *, is_exists: bool) -> _Leaf:
    """Returns the test that a value, or one of its elements, is among those accepted.

    `is_exists` allows nothing but `exists`.
    """
    if not accepted:
        raise UsageError(f"{path}: empty; give at least one value")
    leaves = []
    for index, each in enumerate(accepted):
        at = f"{path}[{index}]"
        if is_exists and not (isinstance(each, Mapping) and "exists" in each):
            raise UsageError(
                f"{at}: only exists can stand here; "
                'a value stands under its type, as in {"S": ["open"]}'
            )
        leaves.append(_accepted(each, name, at))
    bound = union([each.bound for each in leaves]) if name in ("S", "N", "B") else None
    tests = [each.holds for each in leaves]
    return _Leaf(lambda value: any(test(value) for test in tests), bound)


def _accepted(each: object, name: str, path: str) -> _Leaf:
    if not isinstance(each, Mapping):
        return _any_element(_equals(each, name, path))
    if len(each) != 1:
        raise UsageError(f"{path}: give one operator")
    ((word, argument),) = each.items()
    at = f"{path}.{word}"
    match word, argument:
        case "exists", bool():
            return _Leaf(lambda value: (value is not ABSENT) is argument)
        case "exists", _:
            raise UsageError(f"{at}: give true or false")
        case "numeric", _:
            return _any_element(_numeric(argument, name, at))
        case "anything-but", _:
            several = argument if isinstance(argument, list | tuple) else [argument]
            if not several:
                raise UsageError(f"{at}: empty; give at least one value")
            others = [_equals(one, name, f"{at}[{index}]") for index, one in enumerate(several)]
            return _any_element(
                _Leaf(lambda value: not any(other.holds(value) for other in others))
            )
    if word not in _OF_TEXT:
        refuse(path, f'unknown operator "{word}"', word, _OPERATORS)
    if not isinstance(argument, str):
        raise UsageError(f"{at}: give a string")
    compare, text = _OF_TEXT[word], argument
    bound = Texts(name, (text,), whole=False) if word == "prefix" else None
    return _any_element(_Leaf(lambda value: isinstance(value, str) and compare(value, text), bound))


def _any_element(leaf: _Leaf) -> _Leaf:
    """Returns a test of a scalar, or of any element of a list; an absent value never passes."""

    def look(value: object) -> bool:
        if isinstance(value, list):
            return any(look(element) for element in value)
        return value is not ABSENT and not isinstance(value, dict) and leaf.holds(value)

    return leaf._replace(holds=look)


def _equals(literal: object, name: str, path: str) -> _Leaf:
    if literal is None or isinstance(literal, bool):
        return _Leaf(lambda value: value is literal)
    if isinstance(literal, str):
        return _Leaf(lambda value: bool(value == literal), Texts(name, (literal,), whole=True))
    if isinstance(literal, int | float | Decimal):
        return _numeric(["=", literal], name, path)
    raise UsageError(f"{path}: give a string, a number, true, false or null")


def _numeric(argument: object, name: str, path: str) -> _Leaf:
    """Returns the test of a comparison: `["=", 5]`, `[">", 0]`, `[">=", 0, "<", 10]`."""
    comparisons: list[tuple[str, Decimal]] = []
    match argument:
        case [str(sign), bound]:
            pairs = [(sign, bound)]
        case [">" | ">=" as above, least, "<" | "<=" as below, most]:
            pairs = [(above, least), (below, most)]
        case ["<" | "<=" as below, most, ">" | ">=" as above, least]:
            pairs = [(above, least), (below, most)]
        case _:
            pairs = [("", None)]
    for sign, bound in pairs:
        is_number = isinstance(bound, int | float | Decimal) and not isinstance(bound, bool)
        if not (is_number and sign in _COMPARISONS):
            advice = 'give comparisons such as ["=", 5] or [">", 0, "<=", 10]'
            raise UsageError(f"{path}: {advice}")
        if not (number := Decimal(str(bound))).is_finite():
            raise UsageError(f"{path}: not a number that DynamoDB has")
        comparisons.append((sign, number))
    is_numeral = name in _NUMERALS
    tests = [(_COMPARISONS[sign], to) for sign, to in comparisons]

    def test(value: object) -> bool:
        number = _number(value, is_numeral)
        return number is not None and all(compare(number, to) for compare, to in tests)

    low = max((float(to) for sign, to in comparisons if sign[0] in ">="), default=-math.inf)
    high = min((float(to) for sign, to in comparisons if sign[0] in "<="), default=math.inf)
    return _Leaf(test, Range(low, high) if is_numeral else None)


def _number(value: object, is_numeral: bool) -> Decimal | None:
    """Returns a number: DynamoDB's are text, others are JSON's."""
    if isinstance(value, str):
        made = to_number(value) if is_numeral else None
        return made if isinstance(made, Decimal) else None
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return Decimal(str(value)) if is_number else None


def refuse(path: str, text: str, word: str, known: Iterable[str], advice: str = "") -> NoReturn:
    """Raises UsageError for an unknown word, with a suggestion."""
    names = list(known)
    hint = did_you_mean(word, names) or f"; {advice or 'use ' + ', '.join(names)}"
    raise UsageError(f"{path}: {text}{hint}" if path else f"{text}{hint}")
