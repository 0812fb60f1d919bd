"""Failed batches by chance, over splits, rotations and trimmed shards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator import Simulator, Written
from tests.support.hand_clock import HandClock
from tests.support.play import ARN, PlayedService
from tests.support.wire import FIRST, wire
from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.aws.model import AfterSequence, AtSequence, Position, Shard
from watcher.delivery.failed_batches import FailedBatch
from watcher.records.record import Record
from watcher.time_machine.redrive import HeldBatch, Redrive


class History(NamedTuple):
    """A stream that holds the last records of each shard."""

    arn: str
    endpoint: str
    shards: dict[str, list[Written]]
    trimmed: set[str]


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
        yield History(simulator.stream_arn, simulator.endpoint, shards, trimmed)


class Outcome:
    """One run: what handlers had, and whose messages were deleted."""

    def __init__(self, history: History, ranges: list[list[Written]], failing: set[str]) -> None:
        self.given: list[str] = []
        self.done: list[int] = []
        self._failing = failing
        self._settled = 0
        connection = AwsConfig(region="us-east-1", endpoint_url=history.endpoint)
        redrive = Redrive(
            [HeldBatch(_batch(history.arn, each), str(at)) for at, each in enumerate(ranges)],
            lambda arn: for_worker(connection, arn),
            handled=self._handled,
            done=lambda each: self.done.append(int(each.handle)),
        )
        for record in redrive:
            self._take(record)
        self.lost = redrive.lost

    def _take(self, record: Record) -> None:
        self.given.append(record.sequence_number)

    def _handled(self) -> bool:
        new, self._settled = self.given[self._settled :], len(self.given)
        return not self._failing & {*new}


def _batch(arn: str, records: list[Written]) -> FailedBatch:
    first, *_, last = [records[0], *records]
    return FailedBatch(
        arn, first.shard_id, first.sequence_number, last.sequence_number, len(records)
    )


def numbers(records: list[Written]) -> set[str]:
    return {each.sequence_number for each in records}


@given(data=st.data())
def test_a_record_comes_once_in_order_and_no_message_goes_before_its_whole_range(
    history: History, credentials: None, data: st.DataObject
) -> None:
    shards = [*history.shards.values()]
    ranges = []
    for _ in range(data.draw(st.integers(1, 8))):
        records = data.draw(st.sampled_from(shards))
        first = data.draw(st.integers(0, len(records) - 1))
        ranges.append(records[first : first + data.draw(st.integers(1, 9))])
    everything = sorted(set().union(*map(numbers, ranges)), key=int)
    failing = set(data.draw(st.lists(st.sampled_from(everything), max_size=2)))

    run = Outcome(history, ranges, failing)

    whole = [each for each in ranges if not history.trimmed & numbers(each)]
    assert run.lost == len(ranges) - len(whole)
    wanted = set().union(*map(numbers, whole))
    assert len(run.given) == len({*run.given}) and {*run.given} == wanted
    versions: dict[str, list[int]] = {}
    written = {each.sequence_number: each for records in shards for each in records}
    for number in run.given:
        versions.setdefault(written[number].key, []).append(written[number].version)
    assert all(each == sorted(each) for each in versions.values())
    for at, each in enumerate(ranges):
        is_good = not (failing | history.trimmed) & numbers(each)
        if at in run.done:
            assert is_good
        elif is_good:  # it shares records with one that failed, through others perhaps
            assert failing & _connected(each, whole)
    assert len(run.done) == len({*run.done})


class _Padded(PlayedService):
    """A shard whose sequence numbers begin with zeros, as DynamoDB Local's do."""

    def __init__(self) -> None:
        super().__init__(HandClock())
        self.shards["shard"] = Shard("shard", None, _padded(1))

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        assert isinstance(position, AtSequence | AfterSequence)
        number = position.sequence_number
        assert len(number) == 21  # DynamoDB Local refuses shorter ones
        return str(int(number) + isinstance(position, AfterSequence)), self.now

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        records = [wire(each) for each in range(int(iterator), 10)]
        text = json.dumps({"Records": records})
        return re.sub(r'"SequenceNumber": "(\d+)"', _renumbered, text).encode()


def _renumbered(found: re.Match[str]) -> str:
    return f'"SequenceNumber": "{_padded(int(found[1]) - FIRST)}"'


def _padded(number: int) -> str:
    return f"{number:021}"


def test_the_rest_of_a_range_is_read_where_sequence_numbers_begin_with_zeros() -> None:
    batches = [
        FailedBatch(ARN, "shard", _padded(a), _padded(b), b - a + 1) for a, b in [(3, 6), (5, 8)]
    ]
    redrive = Redrive(
        [HeldBatch(each) for each in batches],
        lambda arn: _Padded(),
        handled=lambda: True,
        done=lambda each: None,
    )
    assert [int(each.sequence_number) for each in redrive] == [3, 4, 5, 6, 7, 8]
    assert redrive.done == 2


def _connected(records: list[Written], ranges: list[list[Written]]) -> set[str]:
    found = numbers(records)
    while more := set().union(*(numbers(each) for each in ranges if found & numbers(each))) - found:
        found |= more
    return found


@pytest.fixture(scope="module")
def credentials() -> Iterator[None]:
    """Credentials, which nobody checks."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        yield
