"""The reader against the simulator: every trouble a shard can make, one attempt at a time."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.simulator import Simulator
from tests.simulator.errors import ODD
from tests.support.blocking_reader import BlockingReader
from tests.support.hand_clock import HandClock
from tests.support.wire import shard_key
from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.aws.model import AfterSequence, AtTime, Latest, Position, Service, TrimHorizon
from watcher.streams.messages import (
    ErrorKind,
    IteratorGranted,
    Loss,
    Message,
    Notice,
    Page,
    ReaderEnded,
    ReadFailed,
)


def reader(
    sim: Simulator, position: Position | None = None, shard: str | None = None, **options: object
) -> BlockingReader:
    streams = for_worker(AwsConfig("us-east-1", endpoint_url=sim.endpoint), sim.stream_arn)
    shard = shard or sim.shards[0].id
    return BlockingReader(streams, sim.stream_arn, shard, position or TrimHorizon(), **options)  # type: ignore[arg-type]


class GoingBack:
    """A service whose iterators can go back to where the first one began."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.first = ""
        self._goes_back = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def go_back(self) -> None:
        self._goes_back = True

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        self.first = self.first or iterator
        goes_back, self._goes_back = self._goes_back, False
        return self._service.get_records(self.first if goes_back else iterator)


class Swapping(GoingBack):
    """A service that has exchanged two sequence numbers."""

    def __init__(self, service: Service, one: str, other: str) -> None:
        super().__init__(service)
        self._pair = one.encode(), other.encode()

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        one, other = self._pair
        body = super().get_records(iterator)
        return body.replace(one, b"?").replace(other, one).replace(b"?", other)


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


def test_the_end_of_a_closed_shard_comes_with_its_last_records(
    simulator: Simulator, written: list[str]
) -> None:
    simulator.rotate()
    made = reader(simulator, closed=True)
    messages = read(made)
    assert kinds(messages) == [IteratorGranted, Page, ReaderEnded]
    assert numbers(messages) == written
    assert messages[-1] == ReaderEnded(closed=True)
    assert made.finished
    assert made.read() == []


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


@pytest.mark.parametrize(
    "trouble",
    [
        *("ThrottlingException", "LimitExceededException", "InternalServerError", "unavailable"),
        *("reset", "reset-midway", "truncate", "invalid-json"),
    ],
)
@pytest.mark.parametrize("operation", ["GetShardIterator", "GetRecords"])
def test_a_passing_trouble_is_told_and_loses_nothing(
    simulator: Simulator, written: list[str], trouble: str, operation: str
) -> None:
    simulator.fail_next(operation, trouble, times=2)
    made = reader(simulator)
    for failures in (1, 2):
        (message,) = [each for each in made.read() if isinstance(each, ReadFailed)]
        assert message.failures == failures
        assert made.delay > 0
    assert numbers(read(made)) == written


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


def test_a_service_that_grants_a_time_and_then_fails_is_read_from_its_horizon(
    simulator: Simulator,
) -> None:
    simulator.write("a", 2)
    simulator.advance(3600)
    moment = datetime.fromtimestamp(int(simulator.now), UTC)
    wanted = simulator.write("a", 3)
    simulator.fail_next("GetRecords", "InternalServerError", times=3)
    assert numbers(read(reader(simulator, AtTime(moment)), 4)) == wanted
    assert simulator.calls["GetShardIterator"] == 2


@pytest.mark.parametrize("older", [0, 5])
def test_where_at_timestamp_is_refused_older_records_are_skipped(
    simulator: Simulator, older: int
) -> None:
    simulator.set_faults(at_timestamp=False)
    simulator.write("a", older)
    simulator.advance(3600)
    moment = simulator.now
    wanted = simulator.write("a", 3)
    position = AtTime(datetime.fromtimestamp(int(moment), UTC))
    assert numbers(read(reader(simulator, position))) == wanted


def test_a_time_that_is_doubted_after_errors_brings_the_same_records_as_one_that_is_not(
    simulator: Simulator,
) -> None:
    """Else a micro-batch on Spark is another one when an executor reads it again."""
    simulator.write("a", 3)
    simulator.advance(30)
    position = AtTime(datetime.fromtimestamp(int(simulator.now), UTC))
    wanted = simulator.write("a", 3)
    simulator.fail_next("GetRecords", "InternalServerError", times=3)
    assert numbers(read(reader(simulator, position), 6)) == wanted


def test_creation_times_as_coarse_as_minutes_hide_no_record_of_the_same_minute(
    simulator: Simulator,
) -> None:
    simulator.set_faults(at_timestamp=False, granularity=60)
    moment = datetime.fromtimestamp(int(simulator.now), UTC)
    wanted = simulator.write("a", 3)
    assert numbers(read(reader(simulator, AtTime(moment)))) == wanted


def test_a_trimmed_position_is_a_loss_that_names_it_and_goes_on_at_the_horizon(
    simulator: Simulator, written: list[str]
) -> None:
    simulator.trim(records=3)
    messages = read(reader(simulator, AfterSequence(written[0])), 2)
    (loss,) = [each for each in messages if isinstance(each, Loss)]
    assert written[0] in loss.since
    assert loss.shard_id == simulator.shards[0].id
    assert numbers(messages) == written[3:]


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


@pytest.mark.parametrize("operation", ["GetShardIterator", "GetRecords"])
def test_no_permission_is_trouble_of_its_kind_and_no_start(
    simulator: Simulator, written: list[str], operation: str
) -> None:
    simulator.fail_next(operation, "AccessDeniedException", times=2)
    made = reader(simulator)
    messages = read(made, 2)
    assert [each.kind for each in messages if isinstance(each, ReadFailed)] == [
        ErrorKind.DENIED
    ] * 2
    assert all("no permission" in each.text for each in messages if isinstance(each, ReadFailed))
    assert IteratorGranted not in kinds(messages), "nothing has been read"
    assert kinds(read(made)) == [IteratorGranted, Page]


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
    assert simulator.calls["GetShardIterator"] == 2


def up_to_now(made: BlockingReader, clock: HandClock) -> list[Message]:
    """All that it reads, pausing as it says."""
    messages: list[Message] = []
    while not made.finished:
        messages += made.read()
        clock.sleep(made.delay)
    return messages


def now(sim: Simulator) -> datetime:
    return datetime.fromtimestamp(int(sim.now), UTC)


def test_until_now_leaves_an_open_shard_after_many_empty_pages_and_some_seconds(
    simulator: Simulator, written: list[str]
) -> None:
    clock = HandClock()
    made = reader(simulator, bounded_at=now(simulator) + timedelta(seconds=3), clock=clock)
    messages = up_to_now(made, clock)
    assert numbers(messages) == written
    assert isinstance(messages[-1], ReaderEnded) and "empty pages" in messages[-1].reason
    assert messages[-1].proven
    assert made.position == AfterSequence(written[-1])
    assert 1.9 < clock.passed < 3


def test_until_now_does_not_leave_a_shard_that_latest_knows_to_be_closed(
    simulator: Simulator, written: list[str]
) -> None:
    """A listing may show it as open for seconds; and what is left of it comes late."""
    clock = HandClock()
    made = reader(simulator, bounded_at=now(simulator) + timedelta(seconds=3), clock=clock)
    simulator.rotate()
    simulator.set_faults(closed_empty=20)
    messages = up_to_now(made, clock)
    assert numbers(messages) == written
    assert messages[-1] == ReaderEnded(closed=True)


def test_until_now_is_no_empty_page_what_comes_again(
    simulator: Simulator, written: list[str]
) -> None:
    clock = HandClock()
    simulator.set_faults(max_records=1)
    made = reader(simulator, bounded_at=now(simulator), clock=clock)
    read(made, len(written) - 1)
    simulator.set_faults(max_records=1, back_rate=0.9)
    messages = [each for _ in range(30) if not made.finished for each in made.read()]
    simulator.set_faults(max_records=1)
    messages += up_to_now(made, clock)
    assert numbers(messages) == written[-1:]


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


@pytest.mark.parametrize("skew", [timedelta(minutes=-10), timedelta(minutes=10)])
def test_until_now_believes_no_clock(
    simulator: Simulator, written: list[str], skew: timedelta
) -> None:
    """Neither the records' stamps nor the service's `Date` say what was there at the beginning."""
    clock = HandClock()
    simulator.advance(600)
    later = simulator.write("a", 5)
    simulator.set_faults(max_records=2)
    made = reader(simulator, bounded_at=now(simulator) + skew, clock=clock)
    assert numbers(up_to_now(made, clock)) == written + later


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


def test_an_answer_without_an_iterator_is_asked_about_once_more(
    simulator: Simulator, written: list[str]
) -> None:
    """Else what comes before the shard closes is lost, where no listing shows it as open again."""
    made = reader(simulator)
    first = read(made)
    simulator.fail_next("GetRecords", "ends")
    assert read(made) == []
    later = simulator.write("a", 2)
    simulator.rotate()
    messages = read(made, 3)
    assert numbers(first + messages) == written + later
    assert messages[-1] == ReaderEnded(closed=True)
    assert read(made) == [], "a real end is asked about once"


def test_a_shard_that_is_found_to_be_closed_is_not_left(
    simulator: Simulator, written: list[str]
) -> None:
    clock = HandClock()
    simulator.fail_next("GetRecords", "empty", times=100)
    made = reader(simulator, bounded_at=now(simulator), clock=clock)
    read(made, 5)
    simulator.rotate()
    made.closed = True
    assert numbers(up_to_now(made, clock)) == written


def test_what_the_service_repeats_is_left_out_and_said(simulator: Simulator) -> None:
    written = simulator.write("a", 12)
    simulator.set_faults(max_records=3)
    made = reader(simulator)
    made.service = service = GoingBack(made.service)
    messages = read(made, 3)
    service.go_back()
    messages += read(made, 6)
    assert numbers(messages) == written
    remarks = [message.text for message in messages if isinstance(message, Notice)]
    assert set(remarks) == {"the service gives records again that came before; they are left out"}


def test_a_record_that_comes_pages_late_is_delivered_with_a_warning_and_the_position_stays(
    simulator: Simulator,
) -> None:
    written = simulator.write("a", 4)
    simulator.set_faults(max_records=2)
    made = reader(simulator)
    made.service = Swapping(made.service, written[1], written[2])
    messages = read(made, 2)
    assert numbers(messages) == [written[at] for at in (0, 2, 1, 3)]
    assert made.position == AfterSequence(written[-1])
    assert "a record comes pages after later ones; it is delivered now" in {
        message.text for message in messages if isinstance(message, Notice)
    }


def test_an_iterator_that_goes_back_for_ever_is_trouble_and_a_new_one_is_taken(
    simulator: Simulator,
) -> None:
    written = simulator.write("a", 6)
    simulator.set_faults(max_records=3)
    made = reader(simulator)
    made.service = service = GoingBack(made.service)
    messages: list[Message] = []
    for _ in range(3):
        service.go_back()
        messages += read(made)
    troubles = [message for message in messages if isinstance(message, ReadFailed)]
    assert [trouble.failures for trouble in troubles] == [1]
    assert not made.may_have_more and made.delay > 0
    assert numbers(messages + read(made)) == written


def test_many_records_that_are_later_than_the_end_asked_for_are_its_end(
    simulator: Simulator, written: list[str]
) -> None:
    end = now(simulator)
    simulator.advance(60)
    simulator.bulk(3000)
    made = reader(simulator, end=end)
    assert numbers(read(made, 2)) == written
    assert made.finished


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
