"""Which streams a user means, by name, glob and tag."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from watcher.aws.discovery import WantedStreams
from watcher.aws.model import StreamName
from watcher.errors import StreamError, UsageError

TABLES = ("orders", "shop-a", "shop-b", "shop-test", "users")
ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/"


def row(table: str, label: str = "2026-11-21T00:00:00.000") -> StreamName:
    return StreamName(f"{ARN}{table}/stream/{label}", table, label)


ROWS = list(map(row, TABLES))


def no_tags(table_arn: str) -> Mapping[str, str]:
    raise AssertionError("nobody asked for tags")


def newest(wanted: WantedStreams) -> list[str]:
    return sorted(wanted.newest(ROWS, no_tags))


@pytest.mark.parametrize(
    ("texts", "exclude", "tables"),
    [
        (["shop-*"], [], ["shop-a", "shop-b", "shop-test"]),
        (["shop-*"], ["*-test"], ["shop-a", "shop-b"]),
        (["shop-?", "u*"], [], ["shop-a", "shop-b", "users"]),
        (["SHOP-*"], [], []),
        (["orders"], [], []),
    ],
)
def test_globs_are_of_whole_table_names(
    texts: list[str], exclude: list[str], tables: list[str]
) -> None:
    assert newest(WantedStreams.parse(texts, exclude=exclude)) == tables


def test_of_a_tables_streams_the_newest_counts() -> None:
    rows = [row("orders", "2026-11-20"), row("orders", "2026-11-22"), row("orders", "2026-11-21")]
    found = WantedStreams.parse("ord*").newest(rows, no_tags)
    assert found["orders"].label == "2026-11-22"


def test_tags_narrow_down_what_globs_match_and_are_asked_only_for_that() -> None:
    tags = {"shop-a": {"env": "prod", "team": "x"}, "shop-b": {"env": "test"}, "shop-test": {}}
    asked = []

    def tags_of(table_arn: str) -> Mapping[str, str]:
        asked.append(table_arn.removeprefix(ARN))
        return tags[asked[-1]]

    for given, tables in (
        (["env=prod"], ["shop-a"]),
        (["env=prod", "env=test"], ["shop-a", "shop-b"]),
        (["env=prod", "team"], ["shop-a"]),
        (["env=test", "team"], []),
        ("env=prod", ["shop-a"]),
        (["env"], ["shop-a", "shop-b"]),
    ):
        asked.clear()
        wanted = WantedStreams.parse("shop-*", tags=given)
        assert sorted(wanted.newest(ROWS, tags_of)) == tables
        assert sorted(asked) == ["shop-a", "shop-b", "shop-test"]
    assert WantedStreams.parse((), tags=["env=prod"]).globs == ("*",)


def test_globs_of_arns_are_of_their_region() -> None:
    there = "arn:aws:dynamodb:eu-west-1:123456789012:table/"
    texts = ["users", "shop-?", f"{ARN}shop-a*/stream/*", f"{there}ord*", f"{there}users"]
    wanted = WantedStreams.parse(texts)
    assert wanted.names == ("users", f"{there}users")
    here, us, eu = wanted.by_region()
    assert (here.globs, here.names) == (("shop-?",), ())
    assert (newest(here), newest(us), newest(eu)) == (["shop-a", "shop-b"], ["shop-a"], [])
    row_there = StreamName(f"{there}orders/stream/1", "orders", "1")
    assert list(eu.newest([row_there], no_tags)) == ["orders"]
    assert wanted.unmatched([*ROWS, row_there]) == []


def test_a_glob_without_a_match_is_named() -> None:
    wanted = WantedStreams.parse(["shop-*", "nix-*"], tags=["env"])
    assert wanted.unmatched(ROWS) == ["nix-*"]
    text = "no table with a stream matches 'nix-.', or its tags or --exclude leave them out; see"
    with pytest.raises(StreamError, match=text):
        raise wanted.nothing_matches(["nix-*"])


def test_nothing_named_and_a_tag_without_a_name_are_refused() -> None:
    with pytest.raises(UsageError, match="give a stream: its ARN, a table, a glob"):
        WantedStreams.parse([], exclude=["x"])
    with pytest.raises(UsageError, match="tables of a glob"):
        WantedStreams.parse(["orders", "users"], tags=["env=prod"])
    with pytest.raises(UsageError, match=r"^tags =prod: give NAME=VALUE"):
        WantedStreams.parse([], tags=["=prod"])
