"""The demo's shop: what it is asked, it answers as the service does; it ends with the demo."""

import itertools
import signal
import socket
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.integration.test_readme import reached, shop
from tests.support.program import Program, run

__all__ = ["shop"]  # a fixture


@pytest.fixture
def streams(shop: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in shop.items():
        monkeypatch.setenv(name, value)
    return boto3.client("dynamodbstreams")


@pytest.fixture
def stream(streams: Any) -> dict[str, Any]:
    (found,) = streams.list_streams(TableName="orders")["Streams"]
    answer = streams.describe_stream(StreamArn=found["StreamArn"])
    described: dict[str, Any] = answer["StreamDescription"]
    return described


def test_every_change_of_an_item_is_in_one_line_of_shards(
    streams: Any, stream: dict[str, Any]
) -> None:
    shards = {shard["ShardId"]: shard.get("ParentShardId") for shard in stream["Shards"]}
    places: dict[str, list[str]] = {}
    numbers = set()
    for shard in shards:
        for record in records(streams, stream, shard, ShardIteratorType="TRIM_HORIZON"):
            places.setdefault(str(record["dynamodb"]["Keys"]), []).append(shard)
            numbers.add(record["dynamodb"]["SequenceNumber"])
    assert len(numbers) == sum(map(len, places.values())) > 100
    for there in places.values():
        for before, after in itertools.pairwise(there):
            assert after == before or before in lineage(shards, after)


def lineage(parents: dict[str, str | None], shard: str | None) -> list[str]:
    return [] if shard is None else [shard, *lineage(parents, parents.get(shard))]


def records(
    streams: Any, stream: dict[str, Any], shard: str, **position: Any
) -> list[dict[str, Any]]:
    """A shard's from a position on, in pages of seven, as far as there are any."""
    where = {"StreamArn": stream["StreamArn"], "ShardId": shard, **position}
    iterator = streams.get_shard_iterator(**where)["ShardIterator"]
    found = []
    while iterator:
        page = streams.get_records(ShardIterator=iterator, Limit=7)
        if not page["Records"] and "NextShardIterator" in page:
            break
        found += page["Records"]
        iterator = page.get("NextShardIterator")
    return found


def test_what_the_demo_says_to_undo_is_there_and_a_killed_one_leaves_no_shop_behind(
    tmp_path: Path,
) -> None:
    with Program("demo", "--keep", "--seconds", "1", env={}) as program:
        there = reached(program)
        (line,) = [line for line in program.err if " && export AWS_" in line]
        # What it says to type is to work as it stands, at once and hours later.
        program.wait_for_status("watcher undo orders")
        (undo,) = [line for line in program.err if "watcher undo orders" in line]
        planned = run(*undo.split()[3:], env=there, cwd=tmp_path)
        assert planned.err[-1].startswith("Plan: 19 items (19 MODIFY), 19 write units, 1 conflict")
        # Its end, and that of the shop, which writes to the same standard error.
        program.end(signal.SIGKILL)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(line.rpartition(":")[2]))) != 0
