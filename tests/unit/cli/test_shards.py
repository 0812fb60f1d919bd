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
    *_, late = tree(listing(*lineage), lags={ShardKey("arn", "e"): 3.2})
    assert late == "└── e  open  lag 3 s  1.."


@pytest.mark.parametrize("reverse", [False, True])
def test_a_lineage_of_any_length_is_a_tree(reverse: bool) -> None:
    names = [f"shard-{number}" for number in range(2000)]
    lineage = [(names[0], "gone"), *((child, parent) for parent, child in pairwise(names))]
    _, *found = tree(listing(*(lineage[::-1] if reverse else lineage)))
    assert [line.split()[1] for line in found] == names


def test_a_shard_shows_its_state_age_and_numbers() -> None:
    opened = int((NOON - timedelta(minutes=220)).timestamp() * 1000)
    name = f"shardId-{opened:020d}-5ee6d958"
    shards = [Shard(name, None, "100", "200"), Shard("new", name, "300")]
    made = Listing("arn", "orders", "ENABLED", "KEYS_ONLY", shards, 1, NOON)
    assert list(tree(made, header=True, lags={ShardKey("arn", "new"): 3.0})) == [
        "arn (enabled, KEYS_ONLY)",
        "    SHARD  STATE  AGE  SEQUENCE NUMBERS",
        f"└── {name}  closed  opened 3 h 40 min ago  100..200",
        "    └── new  open  lag 3 s  300..",
    ]


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
