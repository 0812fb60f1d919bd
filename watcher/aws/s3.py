"""S3 objects: listed, read, and written conditionally."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import IO, cast

from botocore import exceptions as boto

from watcher.aws.boto_clients import BotoClients
from watcher.aws.config import AwsConfig, Client
from watcher.aws.error_mapping import error_code, to_watcher_error
from watcher.errors import UsageError

SCHEME = "s3://"
_ATTEMPTS = 3
_CONFLICT = ("ConditionalRequestConflict", "409")
_GONE = ("NoSuchKey", "NoSuchBucket", "404")


class ObjectsClient:
    """A client for S3. Raises StreamError for errors that only the user can fix."""

    def __init__(
        self,
        connection: AwsConfig,
        region: str | None = None,
        *,
        attempts: int = 8,
        call_seconds: float = 60.0,
    ) -> None:
        """Makes up to `attempts` of each call, with a timeout; `region` is a default."""
        # A bucket can be reached from every region.
        clients = BotoClients(
            connection,
            None,
            attempts=attempts,
            read_seconds=call_seconds,
            default_region=region or "us-east-1",
        )
        self._client: Client = clients.new("s3")

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()

    @contextmanager
    def open(self, url: str) -> Iterator[IO[bytes]]:
        """Opens an object. Raises FileNotFoundError, UsageError, StreamError; later OSError."""
        with _errors(url):
            body = cast(IO[bytes], self._client.get_object(**_place(url))["Body"])
        with closing(body):  # as a context, it gives what raises urllib3's errors
            try:
                yield body
            except boto.BotoCoreError as error:  # during the read, which botocore does not retry
                raise ConnectionError(f"it broke off: {error}") from error

    def whole(self, url: str) -> bytes:
        """Returns an object's whole content, tried again if it breaks off. Raises as `open`."""
        for _ in range(_ATTEMPTS - 1):
            with suppress(ConnectionError), self.open(url) as content:
                return content.read()
        with self.open(url) as content:
            return content.read()

    def get(self, url: str) -> tuple[bytes, str] | None:
        """Returns an object's content and ETag; None where there is none.

        Raises TransientError, StreamError.
        """
        try:
            answer = self._client.get_object(**_place(url))
            return answer["Body"].read(), answer["ETag"]
        except (boto.BotoCoreError, boto.ClientError) as error:
            if error_code(error) == "NoSuchKey":
                return None
            raise to_watcher_error(error) from error

    def put_if(
        self, url: str, body: bytes, etag: str | None, *, is_retried: bool = True
    ) -> str | None:
        """Writes an object if the current one has this ETag (None: if there is none).

        Returns its new ETag; None if the condition fails, and with `is_retried` also for a
        simultaneous write. Raises TransientError, StreamError.
        """
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            written = self._client.put_object(
                **_place(url), Body=body, ContentType="application/json", **condition
            )
            new_etag: str = written["ETag"]
            return new_etag
        except (boto.BotoCoreError, boto.ClientError) as error:
            code = error_code(error)
            if code in ("PreconditionFailed", "NoSuchKey") or (is_retried and code in _CONFLICT):
                return None
            raise to_watcher_error(error) from error

    def entries(self, url: str) -> Iterator[tuple[str, bool]]:
        """Yields the names below a prefix, in order, each with True if it is a prefix itself.

        Raises FileNotFoundError, UsageError, StreamError.
        """
        bucket, _, prefix = url.removeprefix(SCHEME).rstrip("/").partition("/")
        prefix = f"{prefix}/" if prefix else ""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=bucket, Prefix=prefix, Delimiter="/"
        )
        with _errors(url):
            for page in pages:
                folders = [each["Prefix"] for each in page.get("CommonPrefixes", ())]
                files = [each["Key"] for each in page.get("Contents", ())]
                for name in sorted(folders + files):
                    if text := name[len(prefix) :].rstrip("/"):
                        yield text, name in folders


def _place(url: str) -> dict[str, str]:
    bucket, _, key = url.removeprefix(SCHEME).partition("/")
    return {"Bucket": bucket, "Key": key}


@contextmanager
def _errors(url: str) -> Iterator[None]:
    try:
        yield
    except boto.ParamValidationError:
        raise UsageError(f"{url} names nothing in S3") from None
    except (boto.BotoCoreError, boto.ClientError) as error:
        if error_code(error) in _GONE:
            raise FileNotFoundError(url) from None
        raise to_watcher_error(error) from error
