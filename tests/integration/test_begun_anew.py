"""An emulator restarts with the same stream and shards, and numbers its records anew."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import Simulator
from watcher import DataLossError, Record, Stream, StreamError, UsageError, watch
from watcher.observability.watch_stats import Totals

pytestmark = pytest.mark.usefixtures("writes_are_there_at_once")
SHARDS = 2


def watched(sim: Simulator, checkpoint: Path, **settings: Any) -> tuple[list[str], Totals]:
    """What a watch up to now sees."""
    seen: list[str] = []
    totals = watch(
        "orders",
        [lambda record: seen.append(record.sequence_number)],
        region="us-east-1",
        endpoint_url=sim.endpoint,
        checkpoint=str(checkpoint),
        **{"start": "trim_horizon", "follow": False, **settings},
    )
    return seen, totals


RESTARTS = pytest.mark.parametrize(
    "told",
    [
        pytest.param({}, id="its creation time tells"),
        pytest.param({"dated": False}, id="nothing comes behind the position"),
        pytest.param({"dated": False, "takes_any": True}, id="lower numbers come"),
    ],
)


def restarted(sim: Simulator, **told: bool) -> list[str]:
    """Restart a minute later, and write; returns the numbers."""
    sim.advance(60)
    sim.begin_anew(**told)
    sim.bulk(6, keys=5)
    return [each.sequence_number for each in sim.records]


@pytest.fixture
def checkpoint(sim: Simulator, tmp_path: Path) -> Path:
    """The checkpoint of a watch that has read all."""
    path = tmp_path / "positions"
    sim.bulk(40, keys=5)
    watched(sim, path)
    return path


@RESTARTS
def test_a_watch_reads_what_follows_and_says_the_loss(
    sim: Simulator, checkpoint: Path, told: dict[str, bool]
) -> None:
    written = restarted(sim, **told)
    seen, totals = watched(sim, checkpoint)
    assert sorted(seen) == sorted(written) and totals.losses == (SHARDS if told else 1)
    seen, totals = watched(sim, checkpoint)
    assert seen == [] and totals.losses == 0


@pytest.mark.parametrize(
    ("setting", "error", "text"),
    [
        ({"on_stale": "fail"}, UsageError, "created again"),
        ({"fail_on_data_loss": True}, DataLossError, "created again"),
        ({"fail_on_data_loss": True}, DataLossError, "from scratch"),
    ],
)
def test_a_watch_that_must_lose_nothing_keeps_its_position(
    sim: Simulator, checkpoint: Path, setting: Any, error: type[Exception], text: str
) -> None:
    restarted(sim, dated="again" in text)
    before = json.loads(checkpoint.read_text())["shards"]
    with pytest.raises(error, match=text):
        watched(sim, checkpoint, **setting)
    assert json.loads(checkpoint.read_text())["shards"] == before


def test_a_running_watch_says_the_loss_and_ends_and_the_next_one_goes_on(
    sim: Simulator, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reading = threading.Event()

    def restart() -> None:
        assert reading.wait(60)
        restarted(sim)

    def on_record(record: Record) -> None:
        reading.set()

    sim.write("a", 1)
    beside = threading.Thread(target=restart)
    beside.start()
    with pytest.raises(StreamError, match="created again"):
        watch(
            "orders",
            [on_record],
            region="us-east-1",
            endpoint_url=sim.endpoint,
            checkpoint=str(checkpoint),
        )
    beside.join()
    assert any("DATA LOSS" in line for line in caplog.messages)
    seen, totals = watched(sim, checkpoint)
    assert sorted(seen) == sorted(each.sequence_number for each in sim.records)
    assert totals.losses == 1


def test_a_running_watch_goes_on_where_the_creation_time_is_the_same(
    sim: Simulator, checkpoint: Path
) -> None:
    written = restarted(sim, dated=False)
    sim.begin_anew(dated=False)  # once more, without a record
    beside = threading.Timer(1.5, lambda: sim.bulk(6, keys=5))
    beside.start()
    seen, totals = watched(sim, checkpoint, follow=True, max_records=6)
    beside.join()
    assert sorted(seen) == sorted(written) and totals.losses == SHARDS


@RESTARTS
def test_a_stream_reads_what_follows_its_token_and_lists_the_loss(
    sim: Simulator, told: dict[str, bool]
) -> None:
    where: dict[str, Any] = {"region": "us-east-1", "endpoint_url": sim.endpoint}
    sim.bulk(40, keys=5)
    with Stream("orders", "trim_horizon", **where) as stream:
        for _ in range(40):
            while next(stream) is None:
                pass
        token = stream.token
    written = restarted(sim, **told)
    with Stream("orders", token, **where) as stream:
        seen: list[str] = []
        while len(seen) < len(written):
            if (record := next(stream)) is not None:
                seen.append(record.sequence_number)
        assert sorted(seen) == sorted(written)
        assert len(stream.losses) == (SHARDS if told else 1)
    if told:
        return
    with pytest.raises(DataLossError, match="created again"):
        Stream("orders", token, fail_on_data_loss=True, **where)
    with pytest.raises(UsageError, match="created again"):
        Stream("orders", token, on_stale="fail", **where)
