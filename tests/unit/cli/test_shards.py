"""The lineage as a tree."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from tests.support.times import NOON
from watcher.aws.model import Listing, Shard, ShardKey, StreamName
from watcher.cli.streams import lines, tree


def listing(*lineage: tuple[str, str | None]) -> Listing:
    shards = [Shard(name, parent, "1") for name, parent in lineage]
    return Listing("arn", "orders", "ENABLED", "KEYS_ONLY", shards, 1, NOON)


def test_each_shard_stands_below_its_parent_whatever_a_listing_order() -> None:
    lineage = [("a", "gone"), ("b", "a"), ("c", "a"), ("d", "b"), ("e", None)]
    shown = ["arn (enabled, KEYS_ONLY)"]
    shown += [
        f"{guide} {name}"
        for guide, name in zip(
            ("├──", "│   ├──", "│   │   └──", "│   └──", "└──"),
            ("a  closed", "b  closed", "d  open", "c  open", "e  open"),
            strict=True,
        )
    ]
    assert [line.removesuffix("  1..") for line in tree(listing(*lineage))] == shown
    late = tree(listing(*lineage), lags={ShardKey("arn", "e"): 3.2})
    assert late[-1] == "└── e  open  1..  lag 3 s"


@pytest.mark.parametrize("reverse", [False, True])
def test_a_lineage_of_any_length_is_a_tree(reverse: bool) -> None:
    names = [f"shard-{number}" for number in range(2000)]
    lineage = [(names[0], "gone"), *((child, parent) for parent, child in pairwise(names))]
    _, *found = tree(listing(*(lineage[::-1] if reverse else lineage)))
    assert [line.split()[1] for line in found] == names


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (200, "└── shardId-00000001795330388569-5ee6d958  closed  100..200  opened 3 h 40 min ago"),
        (80, "└── shardId-00000001795330388569-5ee6d958  closed  opened 3 h 40 min ago"),
        (60, "└── shardId-…-5ee6d958  closed  opened 3 h 40 min ago"),
        (40, "└── shardId-…-5ee6d958  closed"),
    ],
)
def test_lines_fit_into_the_terminal(columns: int, shown: str) -> None:
    opened = int((NOON - timedelta(minutes=220)).timestamp() * 1000)
    names = [f"shardId-{opened:020d}-5ee6d95{number}" for number in (8, 9)]
    shards = [Shard(names[0], None, "100", "200"), Shard(names[1], names[0], "300")]
    made = Listing("arn:" + "x" * 80, "orders", "ENABLED", "KEYS_ONLY", shards, 1, NOON)
    shown_lines = tree(made, columns, header=True)
    assert shown_lines[2] == shown.replace("1795330388569", f"{opened}")
    assert shown_lines[1].split() == [
        "SHARD",
        "STATE",
        *["SEQUENCE", "NUMBERS"] * (columns > 100),
        *["AGE"] * (columns > 40),
    ]
    assert max(map(len, shown_lines)) <= columns


def test_on_a_terminal_the_streams_stand_below_their_columns_names() -> None:
    names = [StreamName("arn:1", "orders", "2026-01-01"), StreamName("arn:22", "x", "2026-01-01")]
    rows = [[each.table, each.label, each.arn, "KEYS_ONLY", "1 open shard"] for each in names]
    assert list(lines(names, iter(rows), header=False))[1] == "\t".join(rows[1])
    header, *shown = lines(names, iter(rows), header=True)
    assert header.split("  ")[0] == "TABLE" and header.endswith("SHARDS")
    assert {
        each.index(word)
        for word, each in zip(("VIEW", "KEYS", "KEYS"), (header, *shown), strict=True)
    } == {header.index("VIEW")}
