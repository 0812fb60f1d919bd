import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.simulator import Simulator, judge
from watcher import DataLossError, Record, Stream, StreamError, UsageError


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(table="orders", shards=3, seed=2) as simulator:
        yield simulator


def stream(sim: Simulator, start: object = "trim_horizon", **settings: object) -> Stream:
    return Stream("orders", start, region="us-east-1", endpoint_url=sim.endpoint, **settings)  # type: ignore[arg-type]


def pull(made: Stream, count: int) -> list[str]:
    """The next so many sequence numbers, however many times there is nothing yet."""
    numbers: list[str] = []
    while len(numbers) < count:
        if (record := next(made)) is not None:
            numbers.append(record.sequence_number)
    return numbers


def test_records_come_one_by_one_and_none_when_there_is_nothing(sim: Simulator) -> None:
    made = stream(sim)
    assert next(made) is None
    sim.write("a", 2)
    pull(made, 2)
    assert next(made) is None


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


def test_all_records_come_once_and_in_order_over_splits_and_rotations(sim: Simulator) -> None:
    made = stream(sim)
    pulled: list[str] = []
    for _ in range(5):
        sim.bulk(400, keys=30)
        sim.split()
        sim.rotate("all")
        pulled += pull(made, 300)
    pulled += pull(made, 2000 - len(pulled))
    assert not any(judge(sim.records, pulled))


def test_shards_are_merged_by_creation_time_then_sequence_number(sim: Simulator) -> None:
    for _ in range(5):
        sim.bulk(60, keys=60)
        sim.advance(2)
    numbers = [int(number) for number in pull(stream(sim), 300)]
    assert numbers == sorted(numbers)


def test_latest_means_the_moment_of_the_call(sim: Simulator) -> None:
    sim.write("a", 5)
    made = stream(sim, "latest")
    later = sim.write("a", 3)
    assert pull(made, 3) == later


def test_a_datetime_starts_there(sim: Simulator) -> None:
    sim.write("a", 5)
    made = stream(sim, datetime.now(UTC) - timedelta(hours=1))
    assert len(pull(made, 5)) == 5


def test_a_datetime_in_the_future_is_refused(sim: Simulator) -> None:
    with pytest.raises(UsageError, match="future"):
        stream(sim, datetime.now(UTC) + timedelta(hours=1))


@pytest.mark.parametrize("as_text", [False, True])
def test_a_token_goes_on_exactly_where_it_was_taken(sim: Simulator, as_text: bool) -> None:
    sim.bulk(200, keys=10)
    sim.split()
    sim.bulk(200, keys=10)
    first = stream(sim)
    pulled = pull(first, 150)
    token = json.loads(json.dumps(first.token))
    second = stream(sim, json.dumps(token) if as_text else token)
    pulled += pull(second, 250)
    assert not any(judge(sim.records, pulled))


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


@pytest.mark.parametrize("token", ["{", "{}", '{"stream_arn": 1}'])
def test_what_is_no_token_is_refused(sim: Simulator, token: str) -> None:
    with pytest.raises(UsageError, match="not a stream token"):
        stream(sim, token)


def test_a_tokens_shard_that_is_gone_is_a_loss_and_its_child_goes_on(sim: Simulator) -> None:
    sim.write("a", 5)
    made = stream(sim)
    pull(made, 2)
    token = made.token
    old = sim.open_shards
    sim.rotate("all")
    later = sim.write("a", 2)
    for shard in old:
        sim.drop_shard(shard)
    resumed = stream(sim, token)
    assert pull(resumed, 2) == later
    assert any("shard" in loss for loss in resumed.losses)
    strict = stream(sim, "latest", fail_on_data_loss=True)
    with pytest.raises(DataLossError, match="DATA LOSS"):
        strict.move_to(token)


def test_a_heartbeat_keeps_idle_shards_iterators_alive(sim: Simulator) -> None:
    made = stream(sim, "latest")
    for _ in range(4):
        sim.advance(600)
        made.heartbeat()
    iterators = sim.calls["GetShardIterator"]
    later = sim.write("a", 1)
    assert pull(made, 1) == later
    assert sim.calls["GetShardIterator"] == iterators


def test_iterators_that_expired_are_renewed_without_loss(sim: Simulator) -> None:
    made = stream(sim, "latest")
    sim.advance(3600)
    later = sim.write("a", 3)
    assert pull(made, 3) == later


def test_troubles_of_the_service_lose_nothing(sim: Simulator) -> None:
    sim.bulk(500, keys=20)
    made = stream(sim)
    sim.set_faults(throttle_rate=0.2, error_rate=0.1, empty_page_rate=0.2, short_page_rate=0.5)
    assert not any(judge(sim.records, pull(made, 500)))


def test_a_stream_that_cannot_be_used_is_said_at_once(sim: Simulator) -> None:
    with pytest.raises(StreamError, match="nosuch"):
        Stream("nosuch", region="us-east-1", endpoint_url=sim.endpoint)


def test_a_record_pulled_is_the_record_that_observers_get(sim: Simulator) -> None:
    sim.write("a", 1)
    made = stream(sim)
    record = None
    while record is None:
        record = next(made)
    assert isinstance(record, Record)
    assert record["dynamodb"]["Keys"] == {"pk": {"S": "a"}}


def test_what_filters_leave_out_moves_the_token(sim: Simulator) -> None:
    sim.write("a", 3)
    wanted = sim.write("b", 2)
    sim.write("a", 3)
    made = stream(sim, key={"pk": "b"})
    assert pull(made, 2) == wanted
    assert next(made) is None
    assert made.filtered == 6
    assert next(stream(sim, made.token)) is None


def test_a_filter_that_cannot_be_is_refused_at_once(sim: Simulator) -> None:
    with pytest.raises(UsageError, match="unknown kind"):
        stream(sim, only="upsert")


def test_a_start_before_all_there_is_is_a_warning(
    sim: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    stream(sim, datetime.now(UTC) - timedelta(hours=30))
    (said,) = [each for each in caplog.records if "holds changes from" in each.message]
    assert said.levelname == "WARNING"
