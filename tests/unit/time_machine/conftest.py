"""What tests of the time machine share."""

from collections.abc import Iterator

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
def breaks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The next reads from S3 break off: as many as it has elements."""
    whole, left = StreamingBody.read, list[str]()

    def read(body: StreamingBody, amt: int | None = None) -> bytes:
        if left:
            raise ReadTimeoutError(endpoint_url="s3", error=left.pop())
        return whole(body, amt)

    monkeypatch.setattr(StreamingBody, "read", read)
    return left
