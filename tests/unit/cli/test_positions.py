"""`positions`: a checkpoint is shown, in each kind of store, also while a watch uses it."""

from __future__ import annotations

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
from watcher.stores.open_store import open_store, read_positions
from watcher.streams.checkpoint_format import all_from_json, from_json

STORES = ("state.json", "dynamodb://positions/orders", "s3://positions/orders.json")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
def simulator(
    endpoint: str, patient_leases: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Simulator]:
    """A stream, and stores of all kinds."""
    monkeypatch.chdir(tmp_path)
    with Simulator(table="orders") as made:
        made.set_environment(monkeypatch.setenv)
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB_STREAMS", made.endpoint)
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="positions")
        yield made
    urlopen(f"{endpoint}/moto-api/reset", b"").close()


def run(*words: str) -> tuple[int, list[str], str]:
    done = program.run("positions", *words, env={})
    return done.status, done.out, (done.err or [""])[-1]


@pytest.mark.parametrize("store", STORES)
def test_each_position_is_shown_while_a_watch_uses_the_store(
    simulator: Simulator, store: str
) -> None:
    (number,) = simulator.write("a", 1)
    with Stream(simulator.stream_arn, "trim_horizon") as stream:
        while next(stream) is None:
            pass
        token = from_json(stream.token)
    with closing(open_store(store, AwsConfig(), None)) as watch:
        watch.peek()
        assert watch.stand_by(lambda: False)
        watch.save([token])
        status, (of_stream, shard), _ = run(store)
        assert status == 0
        assert of_stream.startswith(f"orders  {simulator.stream_arn}  saved 20")
        assert shard == f"  {simulator.shards[0].id}  after {number}"
        _, out, _ = run(store, "-o", "json")
        assert all_from_json("\n".join(out)) == read_positions(store, AwsConfig())


@pytest.mark.parametrize(
    ("store", "told"),
    [("none.json", "error: nothing is stored in none.json"), ("redis://a", "no redis:// here")],
)
def test_what_can_not_be_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run(store)
    assert (status, out, told in err) == (2, [], True)
    assert not list(Path().glob("none*")), "to look leaves no file"
