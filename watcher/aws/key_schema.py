"""The order of a key's attributes in its table: the partition key comes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

# By the names that a key has, those that come first in some table that was described. Told once,
# not handed through: it is for the eye, and what prints a key often knows no table.
known_first: dict[frozenset[str], set[str]] = {}


def remember_key_schema(schema: Iterable[Mapping[str, Any]]) -> None:
    """Remembers a table's `KeySchema`, as DescribeStream and DescribeTable return it."""
    kinds = {each.get("AttributeName", ""): each.get("KeyType") for each in schema}
    firsts = known_first.setdefault(frozenset(kinds), set())
    new = {name for name, kind in kinds.items() if kind == "HASH"} - firsts
    if new:
        firsts |= new
        in_order.cache_clear()


@lru_cache(maxsize=256)
def in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns a key's attributes in the table's order; sorted by name where that is not known.

    It is not known either where two tables have the same names the other way round.
    """
    firsts = known_first.get(frozenset(names), ())
    return tuple(sorted(names, key=lambda name: (len(firsts) != 1 or name not in firsts, name)))
