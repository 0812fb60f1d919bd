"""The destinations of dead letters, from which `replay` reads: files, SQS, S3, functions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias
from urllib.parse import quote

from watcher.aws.config import AwsConfig, Client, ParsedAnswer, blaming
from watcher.errors import UsageError, WatcherError
from watcher.files import append_lines
from watcher.records.record import Record

if TYPE_CHECKING:
    import boto3

_URL = re.compile(r"(?P<kind>sqs|s3)://(?P<place>.+)")
_OTHER_URL = re.compile(r"[a-z][a-z0-9+.-]*://")
_QUEUE_REGION = re.compile(r"https?://sqs\.([\w-]+)\.")
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
_SQS_BYTES = 1024 * 1024
_AT_ONCE = 10  # messages in one call of SQS
_HIDDEN_SECONDS = 900  # then SQS shows a letter again, if `replay` is killed
_POLL_SECONDS = 1  # SQS may miss a letter in a single look


TakeDeadLetter: TypeAlias = Callable[[dict[str, Any]], object]
"""A function of the user's that takes each dead letter: its line of JSON as a dict."""


class DeadLetter(NamedTuple):
    """A record that a handler has finally failed on."""

    record: Record
    handler: str
    line: bytes
    """One line of JSON: the whole record, the handler and the error."""


class DeadLetters(Protocol):
    """A destination of dead letters."""

    name: str
    """The name that messages use for it."""

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Writes these letters; raises the destination's error."""

    def close(self) -> None:
        """Closes the destination."""


def open_dead_letters(place: str | TakeDeadLetter, aws: AwsConfig) -> DeadLetters:
    """Opens the destination in `dead-letter:PLACE`. Raises UsageError."""
    if not isinstance(place, str):
        return _Function(place)
    matched = _URL.fullmatch(place)
    if matched is not None:
        with blaming(place, "on_error"):
            return _KINDS[matched["kind"]](place, matched["place"], aws)
    if _OTHER_URL.match(place):
        raise UsageError(f"{place}: use a file, sqs:// or s3://", "on_error")
    return _File(place)


class _File:
    def __init__(self, place: str) -> None:
        self.name = place
        try:
            self._file = append_lines(place)
        except OSError as error:
            raise UsageError(f"can't write {place}: {error.strerror}", "on_error") from None

    def put(self, letters: Sequence[DeadLetter]) -> None:
        self._file.write(b"".join(letter.line + b"\n" for letter in letters))

    def close(self) -> None:
        self._file.close()


class _Function:
    def __init__(self, function: TakeDeadLetter) -> None:
        self.name = getattr(function, "__name__", repr(function))
        self._function = function

    def put(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            self._function(json.loads(letter.line))

    def close(self) -> None:
        """Does nothing: the function is the caller's."""


class TooLargeError(WatcherError):
    """Raised for a dead letter that is too large for its destination."""


class _Queue:
    """An SQS queue, opened by its name, URL or ARN."""

    def __init__(self, name: str, place: str, aws: AwsConfig) -> None:
        self.name = name
        self._client, self._url = open_queue(place, aws.boto3_session())

    def put(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            if (size := len(letter.line)) > _SQS_BYTES:
                text = f"this letter has {size:,} bytes, and SQS takes {_SQS_BYTES:,}: use s3://"
                raise TooLargeError(text)
            fifo = _fifo_parameters(letter) if self._url.endswith(".fifo") else {}
            self._client.send_message(QueueUrl=self._url, MessageBody=letter.line.decode(), **fifo)

    def close(self) -> None:
        self._client.close()


class _Bucket:
    """An S3 bucket with one object per letter; the same letter replaces its object."""

    def __init__(self, name: str, place: str, aws: AwsConfig) -> None:
        self.name = name
        self._bucket, _, prefix = place.partition("/")
        self._prefix = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
        self._client = aws.boto3_session().client("s3")

    def put(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            record = letter.record
            parts = record.table or "stream", record.shard_id, record.sequence_number.zfill(40)
            key = self._prefix + "/".join(quote(each, safe="") for each in parts)
            key += f"-{quote(letter.handler, safe='')}.json"
            self._client.put_object(Bucket=self._bucket, Key=key, Body=letter.line + b"\n")

    def close(self) -> None:
        self._client.close()


_KINDS: dict[str, Callable[[str, str, AwsConfig], DeadLetters]] = {
    "sqs": _Queue,
    "s3": _Bucket,
}


def _fifo_parameters(letter: DeadLetter) -> dict[str, str]:
    """Returns FIFO parameters: a shard's letters stay in order, and a repeated one is dropped."""
    shard_key = letter.record.shard_key
    identity = f"{shard_key} {letter.record.sequence_number} {letter.handler}"
    return {
        "MessageGroupId": hashlib.sha256(str(shard_key).encode()).hexdigest(),
        "MessageDeduplicationId": hashlib.sha256(identity.encode()).hexdigest(),
    }


def open_queue(place: str, session: boto3.Session) -> tuple[Client, str]:
    """Returns a client for a queue, and the queue's URL, given its name, URL or ARN.

    The queue's region is that of its URL or ARN, else the session's.
    """
    if place.startswith(("http://", "https://")):
        region = _QUEUE_REGION.match(place)
        return session.client("sqs", region_name=region and region[1]), place
    owner, arn_region = {}, None
    if place.startswith("arn:"):
        _, _, _, arn_region, account, place = place.split(":", 5)
        owner = {"QueueOwnerAWSAccountId": account}
    client = session.client("sqs", region_name=arn_region)
    return client, client.get_queue_url(QueueName=place, **owner)["QueueUrl"]


# The letters that `replay` reads


def open_letters(place: str, aws: AwsConfig) -> QueueLetters | Iterator[bytes] | None:
    """Opens the letters at `sqs://…` or `s3://…`; returns None for a file. Raises UsageError."""
    matched = _URL.fullmatch(place)
    if matched is None:
        return None
    with blaming(place):
        if matched["kind"] == "sqs":
            return QueueLetters(*open_queue(matched["place"], aws.boto3_session()))
        bucket, _, prefix = matched["place"].partition("/")
        return _bucket_letters(aws.boto3_session().client("s3"), bucket, prefix)


class QueueLetters:
    """A queue's messages, each received once, and hidden from other consumers meanwhile.

    Successful ones are deleted; the others become visible again at the end.
    """

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._url = url
        self._yielded: list[str] = []
        self._held: dict[str, None] = {}
        self._seen: set[str] = set()

    def __iter__(self) -> Iterator[bytes]:
        """Yields the letters, which may be something else."""
        while messages := self._receive():
            for message in messages:
                self._seen.add(message["MessageId"])
                handle = message["ReceiptHandle"]
                self._held[handle] = None
                self._yielded.append(handle)
                yield message["Body"].encode()

    def _receive(self) -> list[ParsedAnswer]:
        """Returns new messages, after a short wait: SQS may miss some in a single look."""
        answer = self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=_AT_ONCE,
            VisibilityTimeout=_HIDDEN_SECONDS,
            WaitTimeSeconds=_POLL_SECONDS,
        )
        messages: list[ParsedAnswer] = answer.get("Messages", [])
        return [each for each in messages if each["MessageId"] not in self._seen]

    def keep(self) -> None:
        """Keeps the last yielded letter."""
        self._yielded.pop()

    def acknowledge(self, *, went_well: bool, but_last: bool = False) -> None:
        """Ends the letters yielded since the last call, but for the last with `but_last`.

        They are deleted, if they went well.
        """
        finished = self._yielded[:-1] if but_last else self._yielded
        self._yielded = self._yielded[len(finished) :]
        for handle in finished if went_well else ():
            del self._held[handle]
            self._client.delete_message(QueueUrl=self._url, ReceiptHandle=handle)

    def close(self) -> None:
        """Shows the letters that are left to other consumers."""
        handles = list(self._held)
        for first in range(0, len(handles), _AT_ONCE):
            entries = [
                {"Id": str(place), "ReceiptHandle": handle, "VisibilityTimeout": 0}
                for place, handle in enumerate(handles[first : first + _AT_ONCE])
            ]
            self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)
        self._client.close()


def _bucket_letters(client: Client, bucket: str, prefix: str) -> Iterator[bytes]:
    """Yields each object's lines, in the shards' order; the objects stay, as a file does."""
    pages = client.get_paginator("list_objects_v2")
    for page in pages.paginate(Bucket=bucket, Prefix=prefix):
        for each in page.get("Contents", ()):
            answer = client.get_object(Bucket=bucket, Key=each["Key"])
            yield from answer["Body"].read().splitlines(keepends=True)
