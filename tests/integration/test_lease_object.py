"""The object of a shared checkpoint, in moto's S3, and a watch that takes over there."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from tests.support.moto_server import moto_server
from tests.support.moto_server import patient_leases as patient_leases
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
