"""In which order a table has its key's attributes: what says the partition comes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

# By the names that a key has, those that come first in some table that was described. Told once,
# not handed through: it is for the eye, and what prints a key often knows no table.
known_first: dict[frozenset[str], set[str]] = {}


def remember_key_schema(schema: Iterable[Mapping[str, Any]]) -> None:
    """Keep a table's `KeySchema`, as DescribeStream and DescribeTable tell it."""
    kinds = {each.get("AttributeName", ""): each.get("KeyType") for each in schema}
    firsts = known_first.setdefault(frozenset(kinds), set())
    new = {name for name, kind in kinds.items() if kind == "HASH"} - firsts
    if new:
        firsts |= new
        in_order.cache_clear()


@lru_cache(maxsize=256)
def in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """A key's attributes as its table has them; by name where that is not known.

    Nor is it where two tables have the same names the other way round.
    """
    firsts = known_first.get(frozenset(names), ())
    return tuple(sorted(names, key=lambda name: (len(firsts) != 1 or name not in firsts, name)))
