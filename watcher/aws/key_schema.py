"""Remembers the order of key attributes in their tables: the partition key comes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

# The partition keys seen, by the names of a key's attributes. Global, as the order only matters for
# display, and the code that prints a key often has no table.
known_first: dict[frozenset[str], set[str]] = {}


def remember_key_schema(schema: Iterable[Mapping[str, str]]) -> None:
    """Remembers a table's `KeySchema`, as DescribeStream and DescribeTable return it."""
    kinds = {each.get("AttributeName", ""): each.get("KeyType") for each in schema}
    firsts = known_first.setdefault(frozenset(kinds), set())
    new = {name for name, kind in kinds.items() if kind == "HASH"} - firsts
    if new:
        firsts |= new
        in_order.cache_clear()


@lru_cache(maxsize=256)
def in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns a key's attributes in the table's order; sorted by name where that is unknown.

    It is also unknown where two tables use the same names in different orders.
    """
    firsts = known_first.get(frozenset(names), ())
    return tuple(sorted(names, key=lambda name: (len(firsts) != 1 or name not in firsts, name)))
