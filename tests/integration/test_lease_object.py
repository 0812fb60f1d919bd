"""The object of a shared checkpoint, in moto's S3, and a watch that takes over there."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from tests.simulator import Simulator
from tests.support.moto_server import moto_server
from tests.support.moto_server import patient_leases as patient_leases
from tests.support.program import Program
from watcher.aws.config import AwsConfig
from watcher.aws.lease_storage import LeaseObject, LeaseRecord
from watcher.errors import CheckpointError, UsageError

URL = "s3://positions/watches/orders.json"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
def s3(endpoint: str, patient_leases: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client, with a bucket for positions; the environment is for the same place."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "here")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    client: Any = boto3.client("s3", region_name="us-east-1")
    client.create_bucket(Bucket="positions")
    yield client
    for each in client.list_objects_v2(Bucket="positions").get("Contents", ()):
        client.delete_object(Bucket="positions", Key=each["Key"])
    client.close()


def lease(url: str = URL) -> LeaseObject:
    return LeaseObject.from_url(url, AwsConfig(), None)


def test_an_object_is_written_only_over_what_was_seen(s3: Any) -> None:
    mine, other = lease(), lease()
    mine.prepare()
    assert mine.get() is None
    first = LeaseRecord("one", 1, 6.0, b'{"a": [1]}')
    assert mine.replace(first, None)
    assert not mine.replace(first, None)
    assert other.get() == first
    second = LeaseRecord("two", 2, 6.0, b"")
    assert other.replace(second, first)
    assert not mine.replace(LeaseRecord("one", 2, 6.0, b"{}"), first), (
        "it was seen by neither since"
    )
    assert mine.get() == second
    assert mine.replace(LeaseRecord("", 3, 6.0, b"{}"), second)


def test_an_object_that_was_removed_is_not_written_again(s3: Any) -> None:
    mine, first = lease(), LeaseRecord("one", 1, 6.0, b"{}")
    assert mine.replace(first, None)
    s3.delete_object(Bucket="positions", Key="watches/orders.json")
    assert not mine.replace(LeaseRecord("one", 2, 6.0, b"{}"), first)


def test_what_is_no_place_for_positions_is_refused(s3: Any) -> None:
    with pytest.raises(UsageError, match="give s3://BUCKET/KEY"):
        lease("s3://positions")
    s3.put_object(Bucket="positions", Key="watches/orders.json", Body=b"[1, 2]")
    with pytest.raises(UsageError, match="not written by a watch"):
        lease().prepare()
    with pytest.raises(CheckpointError, match="bucket does not exist") as error:
        lease("s3://nowhere/x").prepare()
    assert error.value.answered


@pytest.mark.proof
def test_a_watch_takes_over_from_one_that_was_killed_where_that_had_saved(
    s3: Any, sim: Simulator
) -> None:
    words = "orders", "--from", "trim-horizon", "--checkpoint", URL, "--print-json"
    sim.write("before", 3)
    with Program(*words, env=sim.environment) as first:
        first.wait_for_lines(3)
        with Program(*words, env=sim.environment) as second:
            second.wait_for_status("Standing by")
            first.process.send_signal(signal.SIGINT)
            assert first.wait() in (0, 130)
            second.wait_for_status("Watching")
            sim.write("after", 2)
            second.wait_for_lines(2)
            second.process.kill()
    with Program(*words, env=sim.environment) as third:
        third.wait_for_status("Taking over")
        sim.write("last")
        # What was delivered and not saved yet may come once more before it.
        third.wait_for(lambda: any('"last"' in line for line in third.out))
    assert not any('"before"' in line for line in [*second.out, *third.out])
