import asyncio
import gc
import json
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulator import Simulator, judge
from tests.support.hand_clock import HandClock
from tests.support.pulled import Pulled
from watcher import Stream, StreamError, UsageError
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.errors import StreamGoneError


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(table="orders", shards=3, seed=2) as simulator:
        yield simulator


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that takes long is waited for: then None means that there is nothing."""
    monkeypatch.setattr("watcher.pull.merged_shards.POLL_SECONDS", 20.0)


def stream(sim: Simulator, start: object = "trim_horizon", **settings: object) -> Stream:
    return Stream("orders", start, region="us-east-1", endpoint_url=sim.endpoint, **settings)  # type: ignore[arg-type]


def pull(made: Stream, count: int) -> list[str]:
    """The next so many sequence numbers, however many times there is nothing yet."""
    numbers: list[str] = []
    while len(numbers) < count:
        if (record := next(made)) is not None:
            numbers.append(record.sequence_number)
    return numbers


def test_iterating_waits_for_the_next_record(sim: Simulator) -> None:
    made = stream(sim, poll_max=0.2)
    sim.write("a", 1)
    later = threading.Timer(0.5, sim.write, ("a", 1))
    later.start()
    records = [record for _, record in zip(range(2), made, strict=False)]
    later.join()
    assert [record.key for record in records] == [{"pk": "a"}] * 2
    assert made.token["shards"]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    "faults", [{"short_page_rate": 1.0}, {"empty_page_rate": 0.3}, {"last_page_empty": True}]
)
def test_none_comes_only_when_there_is_nothing(sim: Simulator, faults: dict[str, float]) -> None:
    sim.set_faults(**faults)
    sim.bulk(300)
    sim.rotate("all")
    sim.bulk(30)
    made = stream(sim)
    pulled = []
    while record := next(made):
        pulled.append(record.sequence_number)
    assert not any(judge(sim.records, pulled))


def test_latest_means_that_moment_also_of_a_shard_that_fails_to_begin(sim: Simulator) -> None:
    for shard in sim.open_shards:
        sim.fail_next("GetShardIterator", "ThrottlingException", times=2, shard_id=shard)
    made = stream(sim, "latest")
    later = sim.write("a", 3)
    assert pull(made, 3) == later


def test_shards_are_merged_by_creation_time_then_sequence_number(sim: Simulator) -> None:
    for _ in range(5):
        sim.bulk(60, keys=60)
        sim.advance(2)
    numbers = [int(number) for number in pull(stream(sim), 300)]
    assert numbers == sorted(numbers)


def test_move_to_goes_back_and_forth(sim: Simulator) -> None:
    sim.write("a", 4)
    made = stream(sim)
    first = pull(made, 4)
    made.move_to("trim_horizon")
    assert pull(made, 4) == first
    made.move_to("latest")
    assert next(made) is None


def test_a_token_of_another_stream_is_refused(sim: Simulator) -> None:
    token = {**stream(sim).token, "stream_arn": "arn:other"}
    with pytest.raises(UsageError, match="arn:other"):
        stream(sim, token)


@pytest.mark.parametrize("of_table", [True, False])
def test_a_stream_that_another_has_replaced_ends_once_it_is_read_and_names_that(
    sim: Simulator, of_table: bool
) -> None:
    """As `orders` was disabled and enabled again, say: nothing more comes of the first stream."""
    name = sim.table_name if of_table else sim.stream_arn
    made = Stream(name, "trim_horizon", region="us-east-1", endpoint_url=sim.endpoint)
    first = sim.write("a", 5)
    new = sim.enable_new_stream()
    sim.write("a", 3)
    assert pull(made, 5) == first
    with pytest.raises(StreamGoneError, match=f"all of it is read; .*continue with {new}"):
        pull(made, 1)


def test_a_heartbeat_keeps_idle_shards_iterators_alive(sim: Simulator) -> None:
    made = stream(sim, "latest")
    for _ in range(4):
        sim.advance(600)
        made.heartbeat()
    iterators = sim.calls["GetShardIterator"]
    later = sim.write("a", 1)
    assert pull(made, 1) == later
    assert sim.calls["GetShardIterator"] == iterators


@pytest.mark.usefixtures("patient")
def test_what_filters_leave_out_moves_the_token(sim: Simulator) -> None:
    sim.write("a", 3)
    wanted = sim.write("b", 2)
    sim.write("a", 3)
    made = stream(sim, key={"pk": "b"})
    assert pull(made, 2) == wanted
    assert next(made) is None
    assert made.filtered == 6
    assert next(stream(sim, made.token)) is None


def test_what_is_closed_has_no_socket_left_and_says_so(sim: Simulator) -> None:
    sim.write("a", 1)
    with stream(sim) as made:
        pull(made, 1)
    token = made.token
    made.close()
    for use in (made.__next__, made.heartbeat, lambda: made.move_to("latest")):
        with pytest.raises(UsageError, match="the stream is closed"):
            use()
    with stream(sim, json.dumps(token)) as again:
        assert next(again) is None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        left = stream(sim)
        with pytest.raises(StreamError):
            Stream("nosuch", region="us-east-1", endpoint_url=sim.endpoint)
        del left
        gc.collect()
    assert not [each for each in caught if issubclass(each.category, ResourceWarning)]


async def taken(made: Stream, count: int) -> list[str]:
    numbers = []
    async for record in made:
        numbers.append(record.sequence_number)
        if len(numbers) == count:
            break
    return numbers


def test_a_task_does_not_pause_between_the_pages_of_a_backlog(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim.bulk(16_000)
    written = [record.sequence_number for record in sim.records]
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def seen(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(seconds)

    async def run() -> list[str]:
        service, arn = connect(sim.stream_arn, AwsConfig("us-east-1", endpoint_url=sim.endpoint))
        with Pulled(service, arn, "trim_horizon", clock=HandClock()) as made:
            monkeypatch.setattr("watcher.stream.asyncio.sleep", seen)
            return await taken(made, len(written))

    assert sorted(asyncio.run(run())) == sorted(written)
    assert not [seconds for seconds in pauses if seconds > 0]


def test_a_wait_that_is_cancelled_takes_no_record_and_moves_no_token(sim: Simulator) -> None:
    async def run() -> list[str]:
        made = stream(sim)
        pulled: list[str] = []
        for turn in range(40):
            if turn % 8 == 0:
                sim.bulk(20, keys=5)
            try:
                async with asyncio.timeout(0.002 * (turn % 5)):
                    async for record in made:
                        pulled.append(record.sequence_number)
            except TimeoutError:
                pass
            if turn % 5 == 4:
                made = stream(sim, made.token)
        while len(pulled) < 100:
            pulled += await taken(made, 1)
        return pulled

    pulled = asyncio.run(run())
    assert not any(judge(sim.records, pulled))


def test_the_loop_goes_on_while_a_task_waits(sim: Simulator) -> None:
    async def run() -> int:
        made, turns = stream(sim), 0
        sim.set_faults(latency=0.1)
        task = asyncio.create_task(taken(made, 1))
        until = time.monotonic() + 60
        while turns < 20 and time.monotonic() < until:
            turns += sim.in_flight > 0  # one beside a read
            await asyncio.sleep(0.005)
        sim.write("a", 1)
        await asyncio.wait_for(task, 30)
        return turns

    assert asyncio.run(run()) == 20


def test_a_backlog_leaves_other_tasks_their_turn(sim: Simulator) -> None:
    sim.bulk(900)

    async def run() -> int:
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(turn())
        await taken(stream(sim), 900)
        other.cancel()
        return turns

    assert asyncio.run(run()) >= 8


def test_a_task_opens_and_closes_a_stream_without_blocking(sim: Simulator) -> None:
    written = sim.write("a", 3)

    async def run() -> Stream:
        settings: dict[str, Any] = {"region": "us-east-1", "endpoint_url": sim.endpoint}
        async with await Stream.open("orders", "trim_horizon", **settings) as made:
            assert await taken(made, 3) == written
        return made

    made = asyncio.run(asyncio.wait_for(run(), 60))
    with pytest.raises(UsageError, match="closed"):
        next(made)


def test_a_stream_whose_opening_is_cancelled_is_closed(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = threading.Event()
    close = Stream.close

    def noted(self: Stream) -> None:
        close(self)
        closed.set()

    monkeypatch.setattr(Stream, "close", noted)

    async def run() -> None:
        task = asyncio.create_task(
            Stream.open("orders", region="us-east-1", endpoint_url=sim.endpoint)
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(closed.wait, 60)

    asyncio.run(run())
