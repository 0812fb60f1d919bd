"""The destinations of dead letters, from which `replay` reads: files, SQS, SNS, S3, functions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias
from urllib.parse import quote

from watcher.aws.config import AwsConfig, Client, ParsedAnswer, blaming
from watcher.clock import CLOCK, Clock
from watcher.delivery.timing import HANDLER_TIMING
from watcher.errors import UsageError, WatcherError
from watcher.files import append_lines
from watcher.records.record import Record

_URL = re.compile(r"(?P<kind>sqs|sns|s3)://(?P<place>.+)")
_OTHER_URL = re.compile(r"[a-z][a-z0-9+.-]*://")
_QUEUE_REGION = re.compile(r"https?://sqs\.([\w-]+)\.")
# https://docs.aws.amazon.com/sns/latest/dg/large-message-payloads.html (and SQS's quotas)
_SNS_BYTES = 256 * 1024
_SQS_BYTES = 1024 * 1024
_AT_ONCE = 10  # messages in one call of SQS


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
        raise UsageError(f"{place}: use a file, sqs://, sns:// or s3://", "on_error")
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


def _refuse_too_large(letter: DeadLetter, most: int, service: str) -> None:
    if len(letter.line) > most:
        raise TooLargeError(
            f"this letter has {len(letter.line):,} bytes, and {service} takes {most:,}: use s3://"
        )


class _Queue:
    """An SQS queue, opened by its name, URL or ARN."""

    def __init__(self, name: str, place: str, aws: AwsConfig) -> None:
        self.name = name
        self._client, self._url = _open_queue(place, aws)

    def put(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            _refuse_too_large(letter, _SQS_BYTES, "SQS")
            fifo = _fifo_parameters(letter) if self._url.endswith(".fifo") else {}
            self._client.send_message(QueueUrl=self._url, MessageBody=letter.line.decode(), **fifo)

    def close(self) -> None:
        self._client.close()


class _Topic:
    """An SNS topic, opened by its ARN."""

    def __init__(self, name: str, place: str, aws: AwsConfig) -> None:
        self.name = name
        if not place.startswith("arn:"):
            raise ValueError("give the topic's ARN, as in sns://arn:aws:sns:…")
        self._arn = place
        self._client = _client("sns", place.split(":")[3], aws)

    def put(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            _refuse_too_large(letter, _SNS_BYTES, "SNS")
            fifo = _fifo_parameters(letter) if self._arn.endswith(".fifo") else {}
            self._client.publish(TopicArn=self._arn, Message=letter.line.decode(), **fifo)

    def close(self) -> None:
        self._client.close()


class _Bucket:
    """An S3 bucket with one object per letter; the same letter replaces its object."""

    def __init__(self, name: str, place: str, aws: AwsConfig) -> None:
        self.name = name
        self._bucket, _, prefix = place.partition("/")
        self._prefix = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
        self._client = _client("s3", None, aws)

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
    "sns": _Topic,
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


def _client(service: str, region: str | None, aws: AwsConfig) -> Client:
    """Returns boto3's client with its own credentials and endpoint.

    The endpoint of `--endpoint-url` is DynamoDB's.
    """
    import boto3

    session: Any = boto3.Session(profile_name=aws.profile, region_name=region or aws.region)
    session.get_credentials()  # now: a handler may change the environment later
    return session.client(service)


def _open_queue(place: str, aws: AwsConfig) -> tuple[Client, str]:
    """Returns a client for a queue, and the queue's URL, given its name, URL or ARN."""
    region = _QUEUE_REGION.match(place)
    if place.startswith(("http://", "https://")):
        return _client("sqs", region and region[1], aws), place
    owner = {}
    arn_region = None
    if place.startswith("arn:"):
        _, _, _, arn_region, account, place = place.split(":", 5)
        owner = {"QueueOwnerAWSAccountId": account}
    client = _client("sqs", arn_region, aws)
    return client, client.get_queue_url(QueueName=place, **owner)["QueueUrl"]


# The letters that `replay` reads


class LetterSource(Protocol):
    """Reads dead letters that are handed over again."""

    def __iter__(self) -> Iterator[bytes]:
        """Yields lines, which may be something other than letters."""

    def keep(self) -> None:
        """Keeps the last yielded letter in the queue."""

    def acknowledge(self, *, went_well: bool, but_last: bool = False) -> None:
        """Ends the letters yielded since the last call, but for the last with `but_last`.

        A queue then deletes them, if they went well.
        """

    def close(self) -> None:
        """Closes the source."""


def open_letters(place: str, aws: AwsConfig) -> LetterSource | None:
    """Opens the letters at `sqs://…` or `s3://…`; returns None for a file. Raises UsageError."""
    matched = _URL.fullmatch(place)
    if matched is None:
        return None
    if matched["kind"] == "sns":
        raise UsageError("SNS keeps nothing: replay the queue that is subscribed to it (sqs://…)")
    with blaming(place):
        if matched["kind"] == "sqs":
            return _QueueLetters(HeldMessages.of(matched["place"], aws))
        bucket, _, prefix = matched["place"].partition("/")
        return _BucketLetters(_client("s3", None, aws), bucket, prefix)


class HeldMessages:
    """A queue's messages, each received once, and hidden from other consumers until `close`."""

    def __init__(self, client: Client, url: str, clock: Clock = CLOCK) -> None:
        self._client = client
        self._url = url
        self._clock = clock
        self._held: dict[str, None] = {}
        self._seen: set[str] = set()
        self._due = 0.0

    @classmethod
    def of(cls, place: str, aws: AwsConfig) -> HeldMessages:
        """Opens a queue by its name, URL or ARN."""
        client, url = _open_queue(place, aws)
        return cls(client, url)

    def receive(self) -> Iterator[tuple[str, str]]:
        """Yields the receipt handle and body of each message that was not received before."""
        while messages := self._receive():
            for message in messages:
                self._seen.add(message["MessageId"])
                handle = message["ReceiptHandle"]
                self._held[handle] = None
                yield handle, message["Body"]

    def _receive(self) -> list[ParsedAnswer]:
        """Returns new messages, after a short wait: SQS may miss some in a single look."""
        self.keep_hidden()
        answer = self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=_AT_ONCE,
            VisibilityTimeout=HANDLER_TIMING.letter_hidden_seconds,
            WaitTimeSeconds=HANDLER_TIMING.letter_poll_seconds,
        )
        messages: list[ParsedAnswer] = answer.get("Messages", [])
        return [each for each in messages if each["MessageId"] not in self._seen]

    def delete(self, handle: str) -> None:
        """Deletes a message."""
        del self._held[handle]
        self._client.delete_message(QueueUrl=self._url, ReceiptHandle=handle)

    def keep_hidden(self) -> None:
        """Extends the time for which held messages stay hidden, once half of it has passed."""
        if self._clock.monotonic() >= self._due:
            self._hide(HANDLER_TIMING.letter_hidden_seconds)
            self._due = self._clock.monotonic() + HANDLER_TIMING.letter_hidden_seconds / 2

    def close(self) -> None:
        """Makes the held messages visible to other consumers at once."""
        self._hide(0)
        self._client.close()

    def _hide(self, seconds: int) -> None:
        """Hides the held messages; SQS refuses one after 12 hours, which then becomes visible."""
        handles = list(self._held)
        for first in range(0, len(handles), _AT_ONCE):
            entries = [
                {"Id": str(place), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
                for place, handle in enumerate(handles[first : first + _AT_ONCE])
            ]
            self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)


class _QueueLetters:
    """Deletes successful messages; the others become visible again at the end."""

    def __init__(self, messages: HeldMessages) -> None:
        self._messages = messages
        self._yielded: list[str] = []

    def __iter__(self) -> Iterator[bytes]:
        for handle, body in self._messages.receive():
            self._yielded.append(handle)
            yield _unwrapped(body)

    def keep(self) -> None:
        self._yielded.pop()

    def acknowledge(self, *, went_well: bool, but_last: bool = False) -> None:
        finished = self._yielded[:-1] if but_last else self._yielded
        self._yielded = self._yielded[len(finished) :]
        for handle in finished if went_well else ():
            self._messages.delete(handle)

    def close(self) -> None:
        self._messages.close()


def _unwrapped(body: str) -> bytes:
    """Returns a message without SNS's envelope, which raw delivery leaves out."""
    try:
        message = json.loads(body)
    except ValueError:
        return body.encode()
    if isinstance(message, dict) and message.get("Type") == "Notification":
        return str(message.get("Message", "")).encode()
    return body.encode()


class _BucketLetters:
    """Yields each object's lines, in the shards' order; the objects stay, as a file does."""

    def __init__(self, client: Client, bucket: str, prefix: str) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix

    def __iter__(self) -> Iterator[bytes]:
        pages = self._client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix):
            for each in page.get("Contents", ()):
                answer = self._client.get_object(Bucket=self._bucket, Key=each["Key"])
                yield from answer["Body"].read().splitlines(keepends=True)

    def keep(self) -> None:
        """Does nothing: a replay deletes no object."""

    def acknowledge(self, *, went_well: bool, but_last: bool = False) -> None:
        """Does nothing: a replay deletes no object."""

    def close(self) -> None:
        self._client.close()
