"""What tests of the time machine share."""

from collections.abc import Callable, Iterator
from itertools import repeat

import boto3
import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.response import StreamingBody

from tests.support.moto_server import moto_server


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with moto_server() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="trail")
        yield "s3://trail"


@pytest.fixture
def breaks_off(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """So many of the next reads from S3 break off."""
    whole, failures = StreamingBody.read, iter(repeat(None, 0))

    def read(body: StreamingBody, amt: int | None = None) -> bytes:
        for _ in failures:
            raise ReadTimeoutError(endpoint_url="s3", error="timed out")
        return whole(body, amt)

    def begin(times: int) -> None:
        nonlocal failures
        failures = iter(repeat(None, times))

    monkeypatch.setattr(StreamingBody, "read", read)
    return begin
