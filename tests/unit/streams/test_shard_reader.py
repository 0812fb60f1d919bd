"""The reader against the simulator: every trouble a shard can make, one attempt at a time."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.simulator import Simulator
from tests.simulator.errors import ODD
from tests.simulator.model import FIRST_NUMBER
from tests.support.blocking_reader import BlockingReader
from tests.support.hand_clock import HandClock
from tests.support.wire import body, shard_key
from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.aws.model import AtTime, Latest, Position, TrimHorizon
from watcher.records.page import decode
from watcher.records.wire import WireRecord
from watcher.streams.messages import Loss, Message, Page, ReaderEnded, ReadFailed, make_page


def reader(
    sim: Simulator, position: Position | None = None, shard: str | None = None, **options: object
) -> BlockingReader:
    streams = for_worker(AwsConfig("us-east-1", endpoint_url=sim.endpoint), sim.stream_arn)
    shard = shard or sim.shards[0].id
    return BlockingReader(streams, sim.stream_arn, shard, position or TrimHorizon(), **options)  # type: ignore[arg-type]


def numbers(messages: list[Message]) -> list[str]:
    """The sequence numbers of the pages among the messages."""
    return [
        record.sequence_number
        for message in messages
        if isinstance(message, Page)
        for record in message.opened(shard_key("s"))
    ]


def read(made: BlockingReader, attempts: int = 1) -> list[Message]:
    return [message for _ in range(attempts) for message in made.read()]


def kinds(messages: list[Message]) -> list[type[Message]]:
    return [type(message) for message in messages]


@pytest.fixture
def written(simulator: Simulator) -> list[str]:
    return simulator.write("a", 5)


def test_a_reader_is_caught_up_after_several_empty_pages_and_from_then_on_after_each(
    simulator: Simulator, written: list[str]
) -> None:
    simulator.fail_next("GetRecords", "empty", times=2)
    made = reader(simulator)
    seen = []
    for _ in range(9):
        made.read()
        seen.append(made.is_idle)
    assert seen == [False] * 7 + [True] * 2, "two pages were empty though records followed"
    simulator.write("a")
    made.read()
    assert not made.is_idle
    made.read()
    assert made.is_idle
    simulator.fail_next("GetRecords", "InternalServerError", times=1)
    made.read()
    assert not made.is_idle, "nobody knows"


def test_repeated_trouble_waits_ever_longer_up_to_a_limit(simulator: Simulator) -> None:
    simulator.fail_next("GetShardIterator", "ThrottlingException", times=100)
    made = reader(simulator)
    pauses = []
    for _ in range(12):
        made.read()
        pauses.append(made.delay)
    assert pauses[0] < 1
    assert pauses[-1] <= 10
    assert max(pauses) > 4


REFUSED = {"at_timestamp": False}


@pytest.mark.parametrize(
    ("faults", "older", "age", "errors"),
    [
        pytest.param({}, 2, 3600, 3, id="granted, and then it fails"),
        pytest.param({}, 2, 30, 3, id="fails, and older records are as good as new"),
        pytest.param(REFUSED, 0, 3600, 0, id="refused"),
        pytest.param(REFUSED, 5, 3600, 0, id="refused, and older records are skipped"),
        pytest.param(REFUSED | {"granularity": 60}, 0, 0, 0, id="times as coarse as minutes"),
    ],
)
def test_a_time_brings_the_same_records_whether_it_is_granted_or_not(
    simulator: Simulator, faults: dict[str, Any], older: int, age: int, errors: int
) -> None:
    """Else a micro-batch on Spark is another one when an executor reads it again."""
    simulator.set_faults(**faults)
    simulator.write("a", older)
    simulator.advance(age)
    moment = now(simulator)
    wanted = simulator.write("a", 3)
    if errors:
        simulator.fail_next("GetRecords", "InternalServerError", times=errors)
    assert numbers(read(reader(simulator, AtTime(moment)), 1 + errors)) == wanted
    assert simulator.calls["GetShardIterator"] == max(2, 1 + errors)


@pytest.mark.parametrize("position", [TrimHorizon(), Latest()])
def test_a_horizon_that_moves_on_between_two_calls_is_no_loss(
    simulator: Simulator, written: list[str], position: Position
) -> None:
    simulator.fail_next("GetRecords", "TrimmedDataAccessException")
    made = reader(simulator, position)
    messages = read(made)
    later = simulator.write("b", 2)
    messages += read(made)
    assert Loss not in kinds(messages)
    assert numbers(messages)[-2:] == later


def test_a_shard_that_is_trimmed_at_every_position_is_given_up_as_lost(
    simulator: Simulator,
) -> None:
    simulator.fail_next("GetRecords", "TrimmedDataAccessException", times=100)
    messages = read(reader(simulator), 20)
    assert isinstance(messages[-1], ReaderEnded) and messages[-1].gone


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("operation", ["GetShardIterator", "GetRecords"])
def test_an_odd_answer_is_trouble_and_loses_nothing(
    simulator: Simulator, written: list[str], operation: str, odd: str
) -> None:
    simulator.set_faults(max_records=2)
    made = reader(simulator)
    messages = read(made)
    simulator.fail_next("GetRecords", "ExpiredIteratorException")
    simulator.fail_next(operation, odd, times=2)
    messages += read(made, 8)
    assert numbers(messages) == written
    assert [each.failures for each in messages if isinstance(each, ReadFailed)] == [1, 2]


def test_a_refused_iterator_is_replaced(simulator: Simulator, written: list[str]) -> None:
    simulator.set_faults(max_records=2)
    made = reader(simulator)
    messages = read(made)
    simulator.fail_next("GetRecords", "ValidationException")
    messages += read(made, 3)
    assert numbers(messages) == written
    assert simulator.calls["GetShardIterator"] == 3, "the third is for a look"


def up_to_now(made: BlockingReader, clock: HandClock) -> list[Message]:
    """All that it reads, pausing as it says."""
    messages: list[Message] = []
    while not made.finished:
        messages += made.read()
        clock.sleep(made.delay)
    return messages


def now(sim: Simulator) -> datetime:
    return datetime.fromtimestamp(int(sim.now), UTC)


def test_many_records_that_are_later_than_the_end_asked_for_are_its_end(
    simulator: Simulator, written: list[str]
) -> None:
    end = now(simulator)
    simulator.advance(60)
    simulator.bulk(3000)
    made = reader(simulator, end=end)
    assert numbers(read(made, 2)) == written
    assert made.finished


def test_until_now_ends_at_the_first_record_that_came_after_the_beginning(
    simulator: Simulator, written: list[str]
) -> None:
    """LATEST tells which, and no clock."""
    clock = HandClock()
    simulator.set_faults(max_records=3)
    made = reader(simulator, bounded_at=now(simulator) + timedelta(seconds=3), clock=clock)
    messages = read(made)
    clock.sleep(3)
    messages += read(made)
    while not made.finished:
        simulator.write("a", 4)
        messages += read(made)
        clock.sleep(0.2)
    assert set(written) <= set(numbers(messages))
    assert clock.passed < 5
    reason = "what comes next was written later"
    assert messages[-1] == ReaderEnded(closed=False, proven=True, reason=reason)


def test_a_closed_shard_ends_where_its_iterator_does_after_any_number_of_empty_pages(
    simulator: Simulator, written: list[str]
) -> None:
    simulator.rotate()
    simulator.fail_next("GetRecords", "empty", times=2100)
    clock = HandClock()
    made = reader(simulator, bounded_at=now(simulator), closed=True, clock=clock)
    messages = up_to_now(made, clock)
    assert numbers(messages) == written
    assert messages[-1] == ReaderEnded(closed=True)
    assert clock.passed == 0, "no pause: nothing will ever be written there"


def test_an_iterator_that_goes_back_for_ever_is_trouble_and_a_new_one_is_taken(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = simulator.write("a", 6)
    simulator.set_faults(max_records=3)
    made = reader(simulator)
    asked: list[str] = []
    get_records = made.service.get_records

    def from_the_first(iterator: str, limit: int | None = None) -> bytes:
        asked.append(iterator)
        return bytes(get_records(asked[0]))

    monkeypatch.setattr(made.service, "get_records", from_the_first)
    messages = read(made, 3)
    troubles = [message for message in messages if isinstance(message, ReadFailed)]
    assert [trouble.failures for trouble in troubles] == [1]
    assert not made.may_have_more and made.delay > 0
    monkeypatch.undo()
    assert numbers(messages + read(made)) == written


def test_full_pages_follow_at_once_and_idle_ones_ever_later(simulator: Simulator) -> None:
    simulator.bulk(2500)
    made = reader(simulator)
    read(made)
    assert made.delay == 0
    read(made)
    assert made.delay == 0
    read(made)
    pauses = list(pauses_of(made, 8))
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] <= 0.25
    assert pauses[-1] == 1.0


def test_a_short_poll_max_holds_behind_records_too(simulator: Simulator) -> None:
    simulator.bulk(3)
    made = reader(simulator, poll_max=0.1)
    assert read(made) and made.delay == 0.1
    assert {*pauses_of(made, 8)} == {0.1}


def pauses_of(made: BlockingReader, attempts: int) -> Iterator[float]:
    for _ in range(attempts):
        made.read()
        yield made.delay


def test_an_iterator_that_is_refused_when_it_is_new_is_trouble(simulator: Simulator) -> None:
    """One of old age is not: another takes its place at once."""
    simulator.write("a", 3)
    simulator.fail_next("GetRecords", "ExpiredIteratorException", times=3)
    made = reader(simulator)
    messages = read(made, 4)
    troubles = [message for message in messages if isinstance(message, ReadFailed)]
    assert [trouble.failures for trouble in troubles] == [1, 2, 3]
    assert numbers(messages) and not made.finished


@pytest.mark.parametrize("apart", [0, 500], ids=["has the position's number", "lacks it"])
def test_a_service_that_has_started_from_scratch_and_overtaken_the_position_is_noticed(
    simulator: Simulator, written: list[str], apart: int
) -> None:
    made = reader(simulator)
    read(made, 2)
    simulator.fail_next("GetRecords", "reset", times=2)
    simulator.write("a")
    assert Page in kinds(read(made, 4)), "it is still the same"
    simulator.fail_next("GetRecords", "reset", times=2)
    simulator.advance(60)
    simulator.begin_anew(dated=False, first=FIRST_NUMBER - apart)
    simulator.write("a", 9)
    *before, last = read(made, 4)
    assert numbers(before) == [] and isinstance(last, ReaderEnded) and last.anew
    assert made.position == TrimHorizon()


def test_a_filter_that_fails_leaves_nothing_out() -> None:
    page = body(range(3))
    records = decode(page).Records

    def fail(some: Sequence[WireRecord]) -> list[int]:
        raise ValueError("no such key")

    whole = make_page(page, records, 0, len(records), page_filter=fail)
    assert whole == make_page(page, records, 0, len(records))
