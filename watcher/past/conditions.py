"""Conditions of a write: that the item still is what it is thought to be.

A condition can hold so much: an item with more attributes is compared in part, and one that nobody
has heard of can't be named at all. Whoever writes has to look at the answer's old item as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from watcher.service.tables import Condition

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
