"""How a program that pulls gets at what is new among very many shards: its work is counted."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from datetime import datetime
from itertools import count

import msgspec
import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import ARN, PlayedService
from tests.support.pulled import Pulled
from tests.support.wire import FIRST, wire
from tests.unit.runtime.test_table_snapshots import ALL, Table
from watcher import Stream, UsageError
from watcher.aws.model import Latest, Listing, Position, TrimHorizon
from watcher.call_pool import CallPool
from watcher.pull.merged_shards import MergedShards
from watcher.streams.losses import Losses

_MANY = 3000


class Shards(PlayedService):
    """Open shards, to which a test writes."""

    def __init__(self, clock: HandClock, count: int) -> None:
        super().__init__(clock)
        self.reads = Counter[str]()
        self._written: dict[str, list[object]] = {}
        for number in range(count):
            self.add(f"shard-{number}")

    def write(self, shard_id: str, number: int | None = None) -> None:
        written = self._written.setdefault(shard_id, [])
        written.append(wire(len(written) if number is None else number))

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        return f"{shard_id} {len(self._written.get(shard_id, ()))}", self.now

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        shard_id, _, first = iterator.partition(" ")
        self.reads[shard_id] += 1
        written = self._written.get(shard_id, [])
        answer = {
            "Records": written[int(first) :],
            "NextShardIterator": f"{shard_id} {len(written)}",
        }
        return json.dumps(answer).encode()


def polls_until(stream: Stream, clock: HandClock, seconds: float) -> int:
    """How often it is polled in vain, so many seconds apart, until there is something."""
    polls = 0
    while next(stream) is None:
        polls += 1
        clock.sleep(seconds)
    while next(stream) is not None:
        pass
    return polls


@pytest.mark.parametrize("seconds", [0.3, 10])
def test_a_shard_that_had_records_is_read_by_each_poll_however_many_others_there_are(
    seconds: float,
) -> None:
    clock = HandClock()
    service = Shards(clock, _MANY)
    stream = Pulled(service, ARN, "latest", clock=clock)
    service.write("shard-7")
    polls_until(stream, clock, seconds)
    for _ in range(5):
        clock.sleep(seconds)
        service.write("shard-7")
        assert polls_until(stream, clock, seconds) == 0


def test_busy_shards_leave_idle_ones_their_turn() -> None:
    clock = HandClock()
    service = Shards(clock, 1000)
    stream = Pulled(service, ARN, "latest", clock=clock)
    for number in range(400):
        service.write(f"shard-{number}")
    while next(stream) is not None:
        pass
    before = Counter(service.reads)
    for _ in range(20):
        clock.sleep(1)
        while next(stream) is not None:
            pass
    assert all(service.reads[name] > before[name] for name in service.shards)


class _Large(Shards):
    """Its listing takes many pages; all but the first never comes, and somebody waits for it."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock, 300)
        self.released = threading.Event()

    def list_shards(self, arn: str) -> Listing:
        found = super().list_shards(arn)
        if self.listings > 1:
            self.released.wait(60)
        return msgspec.structs.replace(found, pages=3)


def made_of(service: PlayedService, start: Position, calls: CallPool) -> MergedShards:
    clock = service.clock
    return MergedShards(service, ARN, start, losses=Losses(clock=clock), calls=calls, clock=clock)


def test_a_poll_does_not_wait_for_the_listing_of_a_large_stream() -> None:
    clock = HandClock()
    service, calls = _Large(clock), CallPool()
    made = made_of(service, Latest(), calls)
    clock.sleep(60)
    began = time.monotonic()
    assert made.poll() is None and made.poll(at_once=True) is None
    assert service.listings == 2 and time.monotonic() - began < 30
    service.released.set()
    calls.close()


class _Dripping(Shards):
    """The reads of one shard have no end as long as it drips; it may be slow to begin."""

    def __init__(self, clock: HandClock, count: int, slow: float = 0.0) -> None:
        super().__init__(clock, count)
        self.released = threading.Event()
        self.begun = set[str]()
        self._slow = slow

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        if shard_id == "shard-0":
            time.sleep(self._slow)
        self.begun.add(shard_id)
        return super().get_iterator(arn, shard_id, position)

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        if iterator.startswith("shard-0 "):
            assert self.released.wait(60)
        return super().get_records(iterator, limit)


@pytest.mark.parametrize("start", [Latest(), TrimHorizon()], ids=["latest", "horizon"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_read_that_drips_holds_up_neither_the_beginning_nor_a_heartbeat_nor_a_token(
    start: Position, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watcher.pull.merged_shards.PATIENT_SECONDS", 0.05)
    clock = HandClock()
    service, calls = _Dripping(clock, count), CallPool()
    made = made_of(service, start, calls)
    for _ in range(2):
        clock.sleep(60)
        made.read_all()
    assert len(made.token.shards) == count
    service.write("shard-0")
    for number in range(1, count):
        service.write(f"shard-{number}")
    while made.next_at is None and count > 1:
        clock.sleep(1)
        made.poll()
    assert not service.released.is_set()
    service.released.set()
    found = set[str]()
    while len(found) < count:
        if made.poll(at_once=True) is None:
            clock.sleep(1)
        else:
            found.add(made.pop().shard_id)
    calls.close()


def test_latest_is_not_later_than_the_beginning_though_a_shard_is_slow_to_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("watcher.pull.merged_shards.PATIENT_SECONDS", 0.0)
    clock = HandClock()
    service, calls = _Dripping(clock, 2, slow=0.3), CallPool()
    made_of(service, Latest(), calls)
    assert service.begun == {"shard-0", "shard-1"}
    service.released.set()
    calls.close()


def of_a_token(clock: HandClock, hours: float, policy: str, *, snapshot: bool = False) -> Stream:
    """A stream from a token of a day ago, whose items were told in part."""
    clock.passed = 0.0
    service, table = Shards(clock, 1), Table()
    service.write("shard-0")
    token = Pulled(service, ARN, "latest", clock=clock, items=table).token
    token["snapshot"] = {"items": 1, "segments": [{"after": {"pk": {"S": "k0"}}}]}
    clock.sleep(hours * 3600)
    made = {"clock": clock, "items": table, "on_stale": policy, "snapshot": snapshot}
    return Pulled(service, ARN, token, **made)  # type: ignore[arg-type]


def items(stream: Stream) -> list[str]:
    found = []
    while (record := next(stream)) is not None:
        if record.event_name == "SNAPSHOT":
            found.append(record.key["pk"])
    return found


def test_of_a_token_that_is_too_old_the_items_are_handed_over_anew_where_that_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = HandClock()
    told = "orders: the token is older than the retention of 24 hours: handing over"
    stream = of_a_token(clock, 30, "snapshot")
    assert items(stream) == ALL and not stream.losses
    assert stream.token["snapshot"]["done"] and caplog.text.count(told) == 1
    young = of_a_token(clock, 23, "snapshot")
    assert items(young) == [], "nor goes it on with what was asked for before"
    assert young.token["snapshot"]["segments"] == [{"after": {"pk": {"S": "k0"}}}], (
        "whoever asks again does"
    )
    finished = of_a_token(clock, 23, "snapshot", snapshot=True)
    assert items(finished) == ALL[1:]
    token = finished.token
    del token["snapshot"]
    service, table = Shards(clock, 1), Table()
    again = Pulled(service, ARN, token, clock=clock, items=table, snapshot=True)
    assert items(again) == ALL, "as often as its program wants"


def test_a_token_that_is_too_old_is_a_loss_or_is_refused() -> None:
    clock = HandClock()
    stream = of_a_token(clock, 30, "trim-horizon", snapshot=True)
    assert len(stream.losses) == 1 and "the token is of" in stream.losses[0]
    with pytest.raises(UsageError, match="token: orders: it is older than the retention"):
        of_a_token(clock, 30, "fail")
    with pytest.raises(UsageError, match="on_stale 'perhaps': give fail, trim-horizon or snapshot"):
        Stream("orders", on_stale="perhaps")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("step", "call", "numbers"), [("_end_run", 1, [2, 3]), ("_has_next", 2, [3])]
)
def test_a_read_goes_on_after_ctrl_c_at_the_end_of_a_page(
    step: str, call: int, numbers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a notebook, for one: the program lives on, and reads again."""
    clock = HandClock()
    service = Shards(clock, 1)
    stream = Pulled(service, ARN, "latest", clock=clock)
    for _ in range(3):
        service.write("shard-0")
    clock.sleep(1)
    whole, calls = getattr(MergedShards, step), count(1)

    def interrupted(*arguments: object) -> object:
        if next(calls) == call:
            raise KeyboardInterrupt
        return whole(*arguments)

    monkeypatch.setattr(MergedShards, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        while next(stream):
            pass
    service.write("shard-0")
    clock.sleep(2)

    found = [int(record.sequence_number) - FIRST for record in iter(stream.__next__, None)]
    assert found == numbers
