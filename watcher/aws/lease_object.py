"""A checkpoint shared through S3: an object with conditional writes."""

from __future__ import annotations

import msgspec

from watcher.aws import lease_table
from watcher.aws.config import AwsConfig
from watcher.aws.lease_table import LeaseRecord, checkpoint_error
from watcher.aws.s3 import SCHEME, ObjectsClient
from watcher.errors import StreamError, TransientError, UsageError


class _Content(msgspec.Struct, frozen=True):
    """The object's JSON, with the token as part of it."""

    holder: str
    counter: int
    seconds: float
    token: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def encode(record: LeaseRecord) -> bytes:
    """Returns the lease and its token as JSON."""
    token = msgspec.Raw(record.token) if record.token else msgspec.UNSET
    content = _Content(record.holder, record.counter, record.seconds, token)
    return msgspec.json.encode(content)


def decode(text: bytes, name: str) -> LeaseRecord:
    """Returns the lease that `encode` has encoded. Raises UsageError for other text."""
    try:
        content = msgspec.json.decode(text, type=_Content)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = f"its content was not written by a watch ({error}): choose another name"
        raise UsageError(reason, "checkpoint", name) from None
    token = bytes(content.token) if content.token else b""
    return LeaseRecord(content.holder, content.counter, content.seconds, token)


class LeaseObject:
    """A lease in one object; S3 compares the ETag of each write.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
    """

    def __init__(self, client: ObjectsClient, url: str) -> None:
        self.name = url
        self._client = client
        self._seen: LeaseRecord | None = None
        self._etag = ""  # of `_seen`

    @classmethod
    def from_url(cls, url: str, connection: AwsConfig, region: str | None) -> LeaseObject:
        """Returns the object of a URL (`s3://BUCKET/KEY`). Raises UsageError, StreamError."""
        bucket, _, key = url.removeprefix(SCHEME).partition("/")
        if not bucket or not key or key.endswith("/"):
            raise UsageError(f"give {SCHEME}BUCKET/KEY", "checkpoint", url)
        quick = ObjectsClient(
            connection, region, attempts=1, call_seconds=lease_table.LEASE_CALL_SECONDS
        )
        return cls(quick, url)

    def prepare(self) -> None:
        """Checks that the bucket answers. Raises CheckpointError, UsageError."""
        self.get()

    def get(self) -> LeaseRecord | None:
        """Returns the lease in the object; None where there is none."""
        try:
            found = self._client.get(self.name)
        except (StreamError, TransientError) as error:
            raise checkpoint_error(error, self.name) from error
        if found is None:
            return None
        body, etag = found
        self._seen, self._etag = decode(body, self.name), etag
        return self._seen

    def replace(self, record: LeaseRecord, seen: LeaseRecord | None) -> bool:
        """Writes the object if `seen` is still there; False where it is not."""
        if seen is not None and seen != self._seen and self.get() != seen:
            return False
        body, etag = encode(record), None if seen is None else self._etag
        # Two simultaneous writes conflict: a watch that wants the lease just looks again. For the
        # holder, the other write may be its own earlier one, so the conflict proves nothing.
        is_ours = seen is not None and seen.holder == record.holder
        try:
            written = self._client.put_if(self.name, body, etag, is_retried=not is_ours)
        except (StreamError, TransientError) as error:
            raise checkpoint_error(error, self.name) from error
        if written is not None:
            self._seen, self._etag = record, written
        return written is not None

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()
