"""Shards are read together in one thread; the engine of the contributors' page works."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.simulator import Simulator, judge
from tests.support.hand_clock import HandClock
from tests.support.play import ARN, PlayedService
from tests.support.wire import wire
from watcher.aws.model import Position, TrimHorizon
from watcher.errors import StreamError
from watcher.pull.shard_pool import read_together
from watcher.streams.messages import Page
from watcher.streams.shard_reader import ShardReader

PAGE = Path(__file__).parents[3] / "docs" / "contributing.md"


def engine() -> dict[str, object]:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, object] = {"__name__": "engine"}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_the_engine_of_the_contributors_page_prints_all_records_up_to_now_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Simulator(table="orders", shards=2, seed=3) as simulator:
        monkeypatch.setenv("AWS_ENDPOINT_URL", simulator.endpoint)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        simulator.set_faults(error_rate=0.1, empty_page_rate=0.1, back_rate=0.05)
        for _ in range(3):
            simulator.bulk(200, keys=20)
            simulator.split()
            simulator.rotate("all")
        simulator.bulk(50)
        engine()["print_stream"]("orders")  # type: ignore[operator]
        lines = capsys.readouterr().out.splitlines()
        printed = [json.loads(line)["dynamodb"]["SequenceNumber"] for line in lines]
        assert len(printed) == 650
        assert not any(judge(simulator.records, printed))


class Noting(PlayedService):
    """Notes when each shard's page is requested, and when its answer is awaited."""

    def __init__(self) -> None:
        super().__init__(HandClock())
        self.notes: list[str] = []
        self.records = dict[str, int]()
        self.denied = set[str]()

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        return shard_id, self.now

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        self.notes.append(f"ask {iterator}")
        return self._answer(iterator)

    def prefetch_records(self, iterator: str) -> Callable[[], bytes]:  # type: ignore[override]
        self.notes.append(f"send {iterator}")
        return lambda: self._answer(iterator)

    def _answer(self, shard_id: str) -> bytes:
        self.notes.append(f"take {shard_id}")
        if shard_id in self.denied:
            raise StreamError(f"no way to {shard_id}")
        records = [wire(1)] * self.records.get(shard_id, 0)
        return json.dumps({"Records": records, "NextShardIterator": shard_id}).encode()


def noted(service: Noting, readers: list[ShardReader]) -> list[str]:
    service.notes.clear()
    read_together(readers, service)
    return service.notes


def test_empty_shards_are_requested_before_the_first_answer_is_awaited() -> None:
    service = Noting()
    readers = [
        ShardReader(ARN, name, TrimHorizon(), bounded_at=datetime.now(UTC), clock=service.clock)
        for name in "abc"
    ]
    service.records["c"] = 1
    one_by_one = ["ask a", "take a", "ask b", "take b", "ask c", "take c"]
    assert noted(service, readers) == one_by_one  # no iterators yet
    # A full page of c's would wait in memory.
    assert noted(service, readers) == ["send b", "ask a", "take a", "take b", "ask c", "take c"]
    service.records.clear()
    noted(service, readers)
    assert noted(service, readers) == ["send b", "send c", "ask a", "take a", "take b", "take c"]


def test_an_empty_answer_that_waited_for_a_slow_one_is_requested_again() -> None:
    """It tells of the time when it was requested, which may be too early for a shard's end."""
    service = Noting()
    readers = [ShardReader(ARN, name, TrimHorizon(), clock=service.clock) for name in "ab"]
    read_together(readers, service)
    quick = service.get_records

    def slow(iterator: str, limit: int | None = None) -> bytes:
        service.clock.sleep(20.0 if iterator == "a" else 0.0)
        return quick(iterator, limit)

    service.get_records = slow  # type: ignore[method-assign]
    assert noted(service, readers) == ["send b", "ask a", "take a", "take b", "ask b", "take b"]


def test_the_error_of_one_shard_loses_no_record_of_another() -> None:
    service = Noting()
    readers = [ShardReader(ARN, name, TrimHorizon(), clock=service.clock) for name in "abc"]
    service.denied.add("b")
    service.records["c"] = 1
    found = read_together(readers, service)
    assert isinstance(found["b"], StreamError)
    assert any(isinstance(message, Page) for message in found["c"])  # type: ignore[union-attr]


def test_shards_behind_a_full_page_are_read_next_from_the_answers_that_wait() -> None:
    """Sixteen full pages at a time would take 16 MB in each thread."""
    service = Noting()
    readers = [ShardReader(ARN, name, TrimHorizon(), clock=service.clock) for name in "abcd"]
    read_together(readers, service)
    service.records["b"] = service.records["d"] = 5_000
    found = read_together(readers, service)
    assert found.keys() == {"a", "b"}
    service.records["b"] = 0
    assert noted(service, [readers[3], readers[2]]) == ["take d", "send d"]
    assert noted(service, [readers[2]]) == ["take c"]
