"""The lineage as a tree."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.times import NOON
from watcher.cli.shards import tree
from watcher.service.model import Listing, Shard


def listing(*lineage: tuple[str, str | None]) -> Listing:
    shards = [Shard(name, parent, "1") for name, parent in lineage]
    return Listing("arn", "orders", "ENABLED", "KEYS_ONLY", shards, 1, NOON)


@pytest.mark.parametrize("count", [3, 5000])
def test_a_lineage_of_any_length_is_a_tree(count: int) -> None:
    names = [f"shard-{number}" for number in range(count)]
    lineage = [(names[0], "gone"), *((child, parent) for parent, child in pairwise(names))]
    for order in (lineage, lineage[::-1]):
        branch = tree(listing(*order))
        for number, name in enumerate(names):
            (branch,) = branch.children
            state = "[green]open[/green]" if number == count - 1 else "closed"
            assert branch.label == f"{name}  {state}  1.."
        assert branch.children == []
