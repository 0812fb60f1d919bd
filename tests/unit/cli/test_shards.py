"""The lineage as a tree."""

from __future__ import annotations

import io
from datetime import timedelta
from itertools import pairwise

import pytest
from rich.console import Console

from tests.support.times import NOON
from watcher.aws.model import Listing, Shard
from watcher.cli.streams import tree


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
            state = "open" if number == count - 1 else "closed"
            assert str(branch.label) == f"{name}  {state}  1.."
        assert branch.children == []


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (200, "shardId-00000001795330388569-5ee6d958  closed  100..200  opened 3 h 40 min ago"),
        (80, "shardId-00000001795330388569-5ee6d958  closed  opened 3 h 40 min ago"),
        (60, "shardId-…-5ee6d958  closed  opened 3 h 40 min ago"),
        (40, "shardId-…-5ee6d958  closed"),
    ],
)
def test_lines_fit_into_the_terminal(columns: int, shown: str) -> None:
    opened = int((NOON - timedelta(minutes=220)).timestamp() * 1000)
    names = [f"shardId-{opened:020d}-5ee6d95{number}" for number in (8, 9)]
    shards = [Shard(names[0], None, "100", "200"), Shard(names[1], names[0], "300")]
    made = tree(
        Listing("arn:" + "x" * 80, "orders", "ENABLED", "KEYS_ONLY", shards, 1, NOON), columns
    )
    assert str(made.children[0].label) == shown.replace("1795330388569", f"{opened}")
    printed = io.StringIO()
    Console(file=printed, width=columns).print(made)
    assert len(printed.getvalue().splitlines()) == 3
