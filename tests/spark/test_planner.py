"""The planner and the executors' reading, played through without Spark."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.simulator import Faults, Simulator, judge
from tests.spark.played import ARN, EXPIRED, PlayedQuery, PlayedStream, number
from tests.support.hand_clock import HandClock
from watcher.aws.model import AfterSequence, AtTime, TrimHorizon
from watcher.errors import CredentialsError, DataLossError, StreamError, UsageError
from watcher.pull.ranges import Range
from watcher.spark import offsets
from watcher.spark.offsets import Offset, ShardOffset
from watcher.spark.options import SourceOptions, parse
from watcher.spark.planner import Planner
from watcher.spark.tasks import connected_reader
from watcher.streams.messages import Page

TROUBLE = {
    "throttle_rate": 0.1,
    "error_rate": 0.1,
    "reset_rate": 0.1,
    "truncate_rate": 0.05,
    "invalid_json_rate": 0.05,
    "empty_page_rate": 0.3,
    "short_page_rate": 0.5,
    "operations": ("GetRecords", "GetShardIterator"),
}


PLANNERS: list[Planner] = []


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    yield
    stop_planners()


def stop_planners() -> None:
    """Their threads would go on asking for shards of simulators that are gone."""
    for planner in PLANNERS:
        planner.stop()
    PLANNERS.clear()


def numbers(pages: Iterable[Page]) -> list[str]:
    return [record.dynamodb.SequenceNumber for page in pages for record in page.records()]


class Query:
    """What Spark does with the source, one micro-batch after the other."""

    def __init__(self, sim: Simulator, *, once: bool = False, **more: Any) -> None:
        given = {"stream": sim.stream_arn, "endpointUrl": sim.endpoint, "region": "us-east-1"}
        given["startingPosition"] = "trim_horizon"
        self.options: SourceOptions = parse({**given, **more}, streaming=True)
        self.once = once
        self.offset: Offset | None = None
        self.before: Offset | None = None
        self.delivered: list[str] = []
        self.batches: list[int] = []
        self.start()

    def start(self) -> None:
        """As after a restart: all that is known is the offset."""
        if PLANNERS:
            PLANNERS.pop().stop()
        self.planner = Planner.connected(self.options)
        PLANNERS.append(self.planner)
        if self.once:
            self.planner.stop_at_now()

    def batch(self) -> bool:
        """One micro-batch; whether there was one."""
        if self.offset is None:
            self.offset = self.planner.initial_offset()
        end = self.planner.latest(self.offset, self.options.max_records)
        if end is self.offset:
            return False
        records = [self.read(each) for each in offsets.ranges(self.offset, end)]
        self.batches.append(sum(map(len, records)))
        for part in records:
            self.delivered.extend(part)
        # Spark stores offsets as text.
        self.before, self.offset = self.offset, offsets.from_json(offsets.to_json(end))
        return True

    def read(self, between: Range) -> list[str]:
        pages = self.planner.pages(between)
        if pages is None:
            return self.read_again(between)
        return numbers(each.page() for each in pages)

    def read_again(self, between: Range) -> list[str]:
        return numbers(connected_reader(self.options, self.planner.arn).read(between))

    def until(self, count: int, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while len(self.delivered) < count and time.monotonic() < deadline:
            self.batch()

    def to_the_end(self) -> None:
        while self.batch():
            pass

    def verdict(self, sim: Simulator) -> Any:
        return judge(sim.records, self.delivered)


ALL_WELL: tuple[list[str], ...] = ([], [], [], [])


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(shards=2) as simulator:
        yield simulator
        stop_planners()


def grow(sim: Simulator) -> None:
    """Three generations, by splits and a rotation, each with changes of the same items."""
    sim.bulk(3000, keys=20)
    sim.split()
    sim.bulk(1500, keys=20)
    sim.rotate("all")
    sim.bulk(500, keys=20)


def test_shards_split_and_rotate_while_the_query_runs(sim: Simulator) -> None:
    query = Query(sim)
    for _ in range(3):
        sim.bulk(200, keys=10)
        query.until(len(sim.records))
        sim.split()
        sim.bulk(200, keys=10)
        sim.rotate()

    sim.bulk(100, keys=10)
    query.until(len(sim.records))

    assert query.verdict(sim) == ALL_WELL


def test_no_trouble_of_the_service_loses_or_repeats_anything() -> None:
    faults = Faults(**TROUBLE, listing_lag=1.0, closing_lag=2.0, lag_jitter=True)  # type: ignore[arg-type]
    with Simulator(shards=2, seed=1, faults=faults) as sim:
        query = Query(sim)
        grow(sim)
        query.until(len(sim.records), 40)

        assert query.verdict(sim) == ALL_WELL
        assert len(sim.injected) >= 4


def test_a_range_reads_the_same_again_from_the_service(sim: Simulator) -> None:
    query = Query(sim)
    grow(sim)
    start = query.planner.initial_offset()
    end = query.planner.latest(start, None)

    assert offsets.ranges(start, end)
    for between in offsets.ranges(start, end):
        assert query.read(between) == query.read_again(between)


def test_the_same_start_asked_twice_gives_what_was_there_before(sim: Simulator) -> None:
    sim.bulk(500, keys=10)
    query = Query(sim)
    start = query.planner.initial_offset()

    first = query.planner.latest(start, None)
    again = query.planner.latest(start, None)

    assert first is not start
    for shard_id, place in first.shards.items():
        other = again.shards[shard_id].position
        if isinstance(place.position, AfterSequence):
            assert isinstance(other, AfterSequence)
            assert int(other.sequence_number) >= int(place.position.sequence_number)


def test_a_shard_that_waited_for_longer_than_the_retention_is_a_loss(sim: Simulator) -> None:
    sim.bulk(50, keys=10)
    query = Query(sim)
    query.until(50)
    sim.rotate("all")
    wait_for_ends(query)
    sim.bulk(50, keys=10)
    sim.advance(25 * 3600)
    sim.bulk(50, keys=10)
    query.start()

    with pytest.raises(
        DataLossError, match=r"shard shardId-\S+, unread since \d.*longer than the retention"
    ):
        query.until(100, 3)


def replayed(query: Query) -> list[str]:
    """The last micro-batch once more, as after a crash before its commit."""
    assert query.before and query.offset
    query.start()
    records: list[str] = []
    for each in query.planner.ranges(query.before, query.offset):
        records.extend(query.read(each.between))
    return records


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("closed", [True, False])
def test_a_range_from_the_trim_horizon_that_is_read_again_too_late_is_a_loss(
    fail: str, closed: bool
) -> None:
    with Simulator(shards=1) as sim:
        sim.bulk(10)
        query = Query(sim, once=True, failOnDataLoss=fail)
        query.batch()
        sim.rotate("all")
        wait_for_ends(query)
        sim.bulk(50, keys=10)
        sim.advance(3600)
        sim.bulk(50, keys=10)
        if closed:
            sim.rotate("all")
        sim.advance(5)
        query.start()
        query.until(110)
        assert len(replayed(query)) == 100
        sim.advance(23.5 * 3600)

        if fail == "true":
            # Of an open shard the first record is known: the service itself says that it is gone.
            said = (
                r", unread since \d.*the retention" if closed else " from sequence number .*Trimmed"
            )
            with pytest.raises(DataLossError, match=rf"shard shardId-\S+{said}"):
                replayed(query)
        else:
            assert len(replayed(query)) == 50
            assert query.planner.report()["data_losses"] == closed  # else an executor warns
        stop_planners()


def wait_for_ends(query: Query) -> None:
    """Until the query has seen that all its shards were closed."""
    assert query.offset is not None
    begun = set(query.offset.shards)
    deadline = time.monotonic() + 60
    while not all(
        query.offset.shards[each].finished for each in begun & query.offset.shards.keys()
    ):
        assert time.monotonic() < deadline
        query.batch()


def test_latest_is_the_moment_of_the_first_offset(sim: Simulator) -> None:
    sim.bulk(100, keys=10)
    sim.advance(1200)
    query = Query(sim, startingPosition="latest")
    query.batch()
    assert query.offset is not None
    assert all(isinstance(each.position, AtTime) for each in query.offset.shards.values())
    query.start()

    sim.bulk(50, keys=10)
    query.until(50)

    assert judge(sim.records[100:], query.delivered) == ALL_WELL


def test_latest_loses_nothing_where_the_date_is_minutes_ahead(sim: Simulator) -> None:
    sim.set_faults(date_skew=600.0)
    query = Query(sim, startingPosition="latest")
    query.batch()
    written = sim.write("a", 50)
    query.until(50, 5)
    assert query.delivered == written


def record(number: int, created: float) -> dict[str, Any]:
    inner = {"Keys": {"pk": {"S": f"x{number}"}}, "ApproximateCreationDateTime": created}
    return {"eventName": "INSERT", "dynamodb": inner}


def test_latest_leaves_out_no_record_that_a_clock_behind_has_stamped(sim: Simulator) -> None:
    query = Query(sim, startingPosition="latest")
    query.batch()
    assert query.offset is not None
    (time_of_start,) = {
        place.position.time.timestamp() + 2
        for place in query.offset.shards.values()
        if isinstance(place.position, AtTime)
    }

    written = [sim.append(record(n, time_of_start + n)) for n in (-1, 0, 1)]
    query.until(3, 10)

    assert sorted(query.delivered) == sorted(written)


def test_available_now_leaves_out_no_record_that_a_clock_ahead_has_stamped() -> None:
    with Simulator(shards=1) as sim:
        written = [sim.append(record(n, int(time.time()) + n)) for n in (0, 1)]
        query = Query(sim, once=True)
        sim.append(record(60, time.time() + 60))

        query.to_the_end()

        assert query.delivered[: len(written)] == written
        stop_planners()


def test_finished_shards_leave_the_offset(sim: Simulator) -> None:
    query = Query(sim)
    for _ in range(4):
        sim.bulk(20, keys=10)
        query.until(len(sim.records))
        sim.rotate("all")
    sim.bulk(20, keys=10)
    query.until(len(sim.records))

    assert query.offset is not None
    assert len(query.offset.shards) <= 4


def test_with_fail_on_data_loss_false_the_query_goes_on(sim: Simulator) -> None:
    sim.bulk(100, keys=10)
    query = Query(sim, failOnDataLoss="false")
    query.until(100)
    sim.bulk(100, keys=10)
    sim.trim(150)
    query.start()

    query.until(150, 3)

    assert query.delivered[100:] == [each.sequence_number for each in sim.records[150:]] or set(
        query.delivered[100:]
    ) == {each.sequence_number for each in sim.records[150:]}
    assert query.planner.report()["data_losses"] >= 1


def test_another_stream_s_checkpoint_is_refused(sim: Simulator) -> None:
    query = Query(sim)

    with pytest.raises(UsageError, match="choose another checkpoint"):
        query.planner.latest(Offset("arn:other", {}), None)


def test_a_stream_that_was_created_anew_is_read_from_its_first_record_on(sim: Simulator) -> None:
    query = Query(sim, failOnDataLoss="false")
    sim.bulk(20)
    query.until(20)
    sim.advance(60)
    sim.begin_anew()
    sim.bulk(5)
    query.delivered.clear()
    query.start()
    assert query.batch() and not query.delivered
    query.until(5)
    assert sorted(query.delivered) == sorted(each.sequence_number for each in sim.records)
    assert query.planner.report()["data_losses"] == 1


def test_a_query_stops_as_its_stream_is_created_anew(sim: Simulator) -> None:
    query = Query(sim)
    sim.bulk(20)
    query.until(20)
    sim.advance(60)
    sim.begin_anew()
    query.start()
    with pytest.raises(DataLossError, match="created again"):
        query.batch()


def test_an_idle_query_asks_the_service_seldom(sim: Simulator) -> None:
    query = Query(sim)
    query.batch()
    sim.bulk(10)
    query.until(10)
    before = sim.calls["DescribeStream"]
    begin, took = time.monotonic(), list[float]()

    while time.monotonic() < begin + 4:
        polled = time.monotonic()
        query.batch()
        took.append(time.monotonic() - polled)

    # By the second: on a machine that is full, the four may be many more.
    assert sim.calls["DescribeStream"] - before <= 1 + (time.monotonic() - begin - 4) // 4
    assert min(took) < 0.05, "no poll waits by itself"


@pytest.mark.parametrize(("limit", "lag"), [({"maxRecordsPerTrigger": "10"}, 7200), ({}, 0)])
def test_the_report_is_of_what_comes_after_the_micro_batch(
    sim: Simulator, limit: dict[str, Any], lag: int
) -> None:
    """Spark shows it until there is another one: "81 s behind" stayed when all was archived."""
    sim.advance(-7200)
    sim.rotate("all")
    sim.bulk(60, keys=10)
    sim.rotate("all")
    sim.advance(7200)
    sim.bulk(20, keys=10)
    query = Query(sim, **limit)
    query.planner.latest(query.planner.initial_offset(), 10 if limit else None)
    assert query.planner.report()["lag_seconds"] == pytest.approx(lag, abs=60)

    query.until(80)
    while query.batch():
        pass

    assert query.verdict(sim) == ALL_WELL
    assert query.planner.report()["lag_seconds"] == 0


# Over a played stream: no threads, no sockets, and time passes as the test says.


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def played(clock: HandClock) -> PlayedStream:
    return PlayedStream(clock)


def test_generations_are_delivered_once_and_in_order(
    played: PlayedStream, clock: HandClock
) -> None:
    played.write("a", range(30))
    query = PlayedQuery(played, clock)
    query.run(5)
    played.write("b", range(30, 60), parent="a")
    played.write("c", range(60, 90), parent="a")
    query.run(20)

    assert sorted(query.delivered) == [*range(90)]
    assert query.delivered[:30] == [*range(30)]
    assert query.offset.shards.keys() == {"b", "c"}


def test_expired_credentials_do_not_end_a_query(played: PlayedStream, clock: HandClock) -> None:
    played.write("a", range(10))
    query = PlayedQuery(played, clock)
    query.run(1)
    played.listing_errors = [CredentialsError(EXPIRED) for _ in range(3)]
    played.read_errors = [CredentialsError(EXPIRED) for _ in range(3)]

    played.write("b", range(10, 20), parent="a")
    query.run(60)

    assert query.delivered == [*range(20)]
    assert not played.listing_errors and not played.read_errors
    assert played.renewed == 6


def test_a_shard_that_is_listed_as_open_and_refused_is_read_on_where_it_was(
    played: PlayedStream, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    played.write("a", range(10))
    query = PlayedQuery(played, clock)
    query.run(5)
    played.refused = {"a"}
    query.run(30)
    before = len(played.reads)
    played.write("a", range(10, 20))
    played.refused = set()
    query.run(5)

    assert query.delivered == [*range(20)]
    assert len(played.reads) > before
    assert query.planner.report()["data_losses"] == 0, "the listing has it: nothing is lost"
    assert "Shard a: 4 failures in a row: no such shard" in caplog.messages
    assert not query.offset.shards["a"].finished


def test_nothing_after_a_loss_is_given_out_before_it_is_told(
    played: PlayedStream, clock: HandClock
) -> None:
    played.write("a", range(10))
    query = PlayedQuery(played, clock)
    query.run(5)
    played.write("a", range(10, 30))
    played.trimmed = 14
    query.start()

    with pytest.raises(DataLossError, match=r"shard a from sequence .*failOnDataLoss=false"):
        query.run(10)
    assert query.delivered == [*range(10)]


def test_a_restart_goes_on_from_any_micro_batch(played: PlayedStream, clock: HandClock) -> None:
    played.write("a", range(30))
    played.write("b", range(30, 60), parent="a")
    query = PlayedQuery(played, clock, maxRecordsPerTrigger="9")
    for _ in range(30):
        query.start()
        query.poll()

    assert query.delivered == [*range(60)]


def test_a_deleted_stream_ends_the_query_once_all_is_delivered(
    played: PlayedStream, clock: HandClock
) -> None:
    played.write("a", range(10))
    query = PlayedQuery(played, clock, failOnDataLoss="false")
    query.run(5)
    played.delete()

    with pytest.raises(StreamError, match=f"no stream {ARN}: it was deleted"):
        query.run(60)
    assert query.delivered == [*range(10)]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_shard_that_waited_too_long_before_a_restart_is_a_loss(
    played: PlayedStream, clock: HandClock, is_known: bool
) -> None:
    """Whether an older version has stored it without `since`, or it was found since then."""
    opened = int((clock.time() - 25 * 3600) * 1000)
    name = f"shardId-{opened:020}-a"
    played.write(name, range(10))
    query = PlayedQuery(played, clock)
    stored = {name: ShardOffset(TrimHorizon())} if is_known else {}
    over = ShardOffset(AfterSequence(number(0)), finished=True)
    query.offset = Offset(ARN, {"over": over, **stored})

    with pytest.raises(DataLossError, match=f"shard {name}, unread since"):
        query.run(5)
