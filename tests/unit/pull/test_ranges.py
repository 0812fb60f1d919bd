"""A range of a shard is given out whole and in order, or an error says that it can't be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator import Simulator, Written
from watcher import DataLossError, UsageError, read_range


class History(NamedTuple):
    """A stream that holds the last records of each shard."""

    simulator: Simulator
    shards: dict[str, list[Written]]
    trimmed: set[str]

    def read(self, shard_id: str, **asked: str) -> list[str]:
        there = {"region": "us-east-1", "endpoint_url": self.simulator.endpoint}
        found = read_range(self.simulator.stream_arn, shard_id, **asked, **there)
        return [record.sequence_number for record in found]


@pytest.fixture(scope="module", autouse=True)
def credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "any")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        yield


@pytest.fixture(scope="module")
def history() -> Iterator[History]:
    """Five generations of shards, of 12 records or more each; the first of some are gone."""
    with Simulator(table="orders", shards=2, seed=7) as simulator:
        for generation in range(5):
            simulator.bulk(40, keys=5, begin=40 * generation)
            if generation in (1, 3):
                simulator.rotate("all")
            else:
                simulator.split()
        shards: dict[str, list[Written]] = {}
        for each in simulator.records:
            shards.setdefault(each.shard_id, []).append(each)
        trimmed = set()
        for shard_id, records in list(shards.items())[:4]:
            count = simulator.trim(len(records) // 3, shard_id)
            trimmed |= {each.sequence_number for each in records[:count]}
        assert len(shards) > 8 and len(trimmed) > 8
        simulator.set_faults(short_page_rate=0.5, max_records=15)
        yield History(simulator, shards, trimmed)


@given(data=st.data())
def test_a_range_comes_whole_and_in_order_or_is_a_loss(
    history: History, data: st.DataObject
) -> None:
    shard_id = data.draw(st.sampled_from([*history.shards]))
    numbers = [each.sequence_number for each in history.shards[shard_id]]
    begin = data.draw(st.integers(0, len(numbers) - 1))
    wanted = numbers[begin : begin + data.draw(st.integers(1, 9))]
    if history.trimmed & {*wanted}:
        with pytest.raises(DataLossError):
            history.read(shard_id, first=wanted[0], last=wanted[-1])
    else:
        assert history.read(shard_id, first=wanted[0], last=wanted[-1]) == wanted


def test_a_last_number_that_is_not_there_is_a_loss(history: History) -> None:
    shard_id, records = list(history.shards.items())[-1]
    later = str(int(records[-1].sequence_number) + 10)
    with pytest.raises(DataLossError, match="it ended at sequence number"):
        history.read(shard_id, first=records[-2].sequence_number, last=later)


def test_a_shard_and_a_stream_that_are_gone_are_losses() -> None:
    with Simulator(table="orders") as simulator:
        numbers = [simulator.put({"pk": {"S": "a"}}) for _ in range(3)]
        shard_id = simulator.records[0].shard_id
        history = History(simulator, {}, set())
        simulator.rotate(shard_id)
        simulator.drop_shard(shard_id)
        with pytest.raises(DataLossError):
            history.read(shard_id, first=numbers[0], last=numbers[2])
        there = {"region": "us-east-1", "endpoint_url": simulator.endpoint}
        arn = simulator.stream_arn.replace("orders", "others")
        with pytest.raises(DataLossError):
            list(read_range(arn, shard_id, first=numbers[0], last=numbers[2], **there))


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"first": "one", "last": "2"}, "give a sequence number"),
        ({"first": "1", "last": "²"}, "give a sequence number"),
        ({"first": "3", "last": "2"}, "before the beginning, 3"),
    ],
)
def test_what_can_be_no_range_is_refused_at_once(asked: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        read_range("orders", "shardId-1", **asked)
