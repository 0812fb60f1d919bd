"""Objects in S3: listed, read, and written on a condition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import IO, cast

from botocore import exceptions as boto
from botocore.config import Config

from watcher.aws.config import AwsConfig, Client, region_of
from watcher.aws.credentials import SigningCredentials, own_credentials, session
from watcher.aws.error_mapping import error_code, to_stream_error, to_watcher_error
from watcher.errors import UsageError
from watcher.version import __version__

SCHEME = "s3://"
_ATTEMPTS = 3
_CONFLICT = ("ConditionalRequestConflict", "409")
_GONE = ("NoSuchKey", "NoSuchBucket", "404")


class ObjectsClient:
    """A client for S3. Raises StreamError for what only the user can mend."""

    def __init__(
        self,
        connection: AwsConfig,
        region: str | None = None,
        *,
        attempts: int = 8,
        call_seconds: float = 60.0,
    ) -> None:
        """A call is made so many times, and waits for an answer so long; `region` is a default."""
        settings = Config(
            retries={"mode": "standard", "total_max_attempts": attempts},
            connect_timeout=call_seconds,
            read_timeout=call_seconds,
            user_agent_extra=f"watcher/{__version__}",
        )
        try:
            botocore_session = session(connection)
            # A bucket is found from every region.
            region = region_of(connection, botocore_session, None) or region or "us-east-1"
            credentials = own_credentials(connection, region)
            botocore_session.register_component(
                "credential_provider", SigningCredentials(credentials)
            )
            self._client: Client = botocore_session.create_client(
                "s3", region_name=region, endpoint_url=connection.endpoint_url, config=settings
            )
        except (boto.BotoCoreError, ValueError) as error:
            told = to_stream_error(error)
            told.option = connection.to_blame(error)
            raise told from error

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def open(self, url: str) -> IO[bytes]:
        """An object's content, as it comes. Raises FileNotFoundError, UsageError, StreamError."""
        bucket, _, key = url.removeprefix(SCHEME).partition("/")
        try:
            return cast(IO[bytes], self._client.get_object(Bucket=bucket, Key=key)["Body"])
        except boto.ParamValidationError:
            raise UsageError(f"{url} names no object in S3") from None
        except (boto.BotoCoreError, boto.ClientError) as error:
            if error_code(error) in _GONE:
                raise FileNotFoundError(url) from None
            raise to_watcher_error(error) from error

    def whole(self, url: str) -> bytes:
        """An object's whole content. Raises OSError where it breaks off, and as `open` does."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                with closing(self.open(url)) as content:
                    return content.read()
            except boto.BotoCoreError as error:  # while it was read: botocore tries no more
                if not left:
                    raise OSError(f"it broke off: {error}") from error
        raise AssertionError

    def get(self, url: str) -> tuple[bytes, str] | None:
        """Returns an object's content and ETag; None where there is none.

        Raises TransientError, StreamError.
        """
        bucket, _, key = url.removeprefix(SCHEME).partition("/")
        try:
            answer = self._client.get_object(Bucket=bucket, Key=key)
            return answer["Body"].read(), answer["ETag"]
        except (boto.BotoCoreError, boto.ClientError) as error:
            if error_code(error) == "NoSuchKey":
                return None
            raise to_watcher_error(error) from error

    def put_if(
        self, url: str, body: bytes, etag: str | None, *, is_retried: bool = True
    ) -> str | None:
        """Writes an object in the place of the one with this ETag (None: of none).

        Returns its ETag; None where another is there, and with `is_retried` also where somebody
        writes at the same moment. Raises TransientError, StreamError.
        """
        bucket, _, key = url.removeprefix(SCHEME).partition("/")
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            written = self._client.put_object(
                Bucket=bucket, Key=key, Body=body, ContentType="application/json", **condition
            )
            found: str = written["ETag"]
            return found
        except (boto.BotoCoreError, boto.ClientError) as error:
            code = error_code(error)
            if code in ("PreconditionFailed", "NoSuchKey") or (is_retried and code in _CONFLICT):
                return None
            raise to_watcher_error(error) from error

    def entries(self, url: str, after: str = "") -> Iterator[tuple[str, bool]]:
        """Yields the names below a prefix, in order, and whether each is a prefix of others.

        Begins behind the name `after`. Raises FileNotFoundError, UsageError, StreamError.
        """
        bucket, _, prefix = url.removeprefix(SCHEME).rstrip("/").partition("/")
        prefix = f"{prefix}/" if prefix else ""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=bucket,
            Prefix=prefix,
            Delimiter="/",
            **{"StartAfter": prefix + after} if after else {},
        )
        try:
            for page in pages:
                folders = [each["Prefix"] for each in page.get("CommonPrefixes", ())]
                files = [each["Key"] for each in page.get("Contents", ())]
                names = [
                    (name[len(prefix) :].rstrip("/"), name in folders)
                    for name in sorted(folders + files)
                ]
                yield from (each for each in names if each[0])
        except boto.ParamValidationError:
            raise UsageError(f"{url} names no bucket in S3") from None
        except (boto.BotoCoreError, boto.ClientError) as error:
            if error_code(error) in _GONE:
                raise FileNotFoundError(url) from None
            raise to_watcher_error(error) from error
