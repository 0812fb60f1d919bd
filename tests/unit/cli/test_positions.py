"""`positions`: shown and moved back, in each kind of store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import boto3
import pytest

from tests.simulator import Simulator
from tests.support import program
from tests.support.moto_server import moto_server
from tests.support.moto_server import patient_leases as patient_leases
from watcher import Stream
from watcher.aws.config import AwsConfig
from watcher.stores.open_store import claimed, open_store, read_positions
from watcher.streams.checkpoint_format import all_from_json, all_to_dict, from_json

STORES = ("state.json", "dynamodb://positions/orders", "s3://positions/orders.json")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
def simulator(
    endpoint: str, patient_leases: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Simulator]:
    """Three changes of two hours ago and one since; two tables; stores of all kinds."""
    monkeypatch.chdir(tmp_path)
    with Simulator(table="orders", clock=lambda: time.time() - 7200) as made:
        made.set_environment(monkeypatch.setenv)
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB_STREAMS", made.endpoint)
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="positions")
        made.write("a", 3)
        made.advance(3600)
        made.write("b", 1)
        yield made
    urlopen(f"{endpoint}/moto-api/reset", b"").close()


def stored(simulator: Simulator, store: str, most: int = 100) -> list[str]:
    """Reads the stream, and has a store hold where that ended; returns the records' numbers."""
    with Stream(simulator.stream_arn, "trim_horizon") as stream:
        numbers: list[str] = []
        while len(numbers) < most and (record := next(stream)) is not None:
            numbers.append(record.sequence_number)
        token = from_json(stream.token)
    with claimed(store, AwsConfig()) as opened:
        opened.save([token])
    return numbers


def run(*words: str) -> tuple[int, list[str], str]:
    done = program.run("positions", *words, env={})
    return done.status, done.out, (done.err or [""])[-1]


@pytest.mark.parametrize("store", STORES)
def test_a_rewind_is_a_plan_first_and_then_done(simulator: Simulator, store: str) -> None:
    numbers = stored(simulator, store)
    (shard,) = (each.id for each in simulator.shards)
    before = read_positions(store, AwsConfig())
    status, out, told = run(store, "--from", "90m")
    assert (status, read_positions(store, AwsConfig())) == (0, before)
    (line,) = out
    assert line.startswith(f"orders  {shard}  after {numbers[-1]} -> from 20")
    assert told == "Plan: 1 position; nothing was written; to do it, add --apply"
    status, out, told = run(store, "--from", "90m", "--apply")
    assert (status, len(out), told) == (0, 1, "Written: 1 position")
    (after,) = read_positions(store, AwsConfig())
    with Stream(simulator.stream_arn, all_to_dict([after])) as stream:
        record = next(stream)
        assert record is not None
        assert record.sequence_number == numbers[-1]
    assert run(store, "--from", "10m")[1:] == ([], "Plan: nothing to do")


@pytest.mark.parametrize("store", STORES)
def test_nothing_is_written_while_a_watch_uses_the_store(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setattr("watcher.stores.open_store.CLAIM_SECONDS", 2.0)
    stored(simulator, store)
    with closing(open_store(store, AwsConfig(), None)) as watch:
        watch.peek()
        assert watch.stand_by(lambda: False)
        before = read_positions(store, AwsConfig())
        status, _, told = run(store, "--from", "2h", "--apply")
        assert (status, "another watch uses it" in told) == (2, True), told
        assert read_positions(store, AwsConfig()) == before
        assert run(store)[0] == 0
        assert run(store, "--from", "2h")[0] == 0, "a plan may be made"


def test_show_prints_each_position(simulator: Simulator) -> None:
    numbers = stored(simulator, "state.json")
    status, (stream, shard), _ = run("state.json")
    assert status == 0
    assert stream.startswith(f"orders  {simulator.stream_arn}  saved 20")
    assert shard == f"  {simulator.shards[0].id}  after {numbers[-1]}"
    _, out, _ = run("state.json", "-o", "json")
    assert all_from_json("\n".join(out)) == read_positions("state.json", AwsConfig())
    assert run("none.json") == (2, [], "error: nothing is stored in none.json")
    assert not list(Path().glob("none*")), "to look leaves no file"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["a.json", "--from", "latest"], "positions only move back"),
        (["a.json", "--from", "2h", "-o", "json"], "-o: it is for positions as they are"),
        (["a.json", "--from", "2h"], "nothing is stored in a.json"),
        (["a.json", "--apply"], "--apply: it goes with --from"),
        (["redis://a"], "no redis:// here"),
    ],
)
def test_what_can_not_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run(*words)
    assert (status, out) == (2, [])
    assert told in err
