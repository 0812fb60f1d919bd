"""The destinations of dead letters: files, SQS, S3, functions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import quote

from watcher.aws.config import AwsConfig, Client, blaming
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


TakeDeadLetter: TypeAlias = Callable[[dict[str, Any]], object]
"""A function of the user's that takes each dead letter: its line of JSON as a dict."""


class DeadLetters(NamedTuple):
    """A destination of dead letters."""

    name: str
    """The name that messages use for it."""
    put: Callable[[Record, str, bytes], object]
    """Writes a letter: the record, the handler, and one line of JSON. Raises its own error."""
    close: Callable[[], object]


def open_dead_letters(place: str | TakeDeadLetter, aws: AwsConfig) -> DeadLetters:
    """Opens the destination in `dead-letter:PLACE`. Raises UsageError."""
    if not isinstance(place, str):
        take, name = place, getattr(place, "__name__", repr(place))
        return DeadLetters(name, lambda _, __, line: take(json.loads(line)), lambda: None)
    if matched := _URL.fullmatch(place):
        with blaming(place, "on_error"):
            open_place = _open_queue if matched["kind"] == "sqs" else _open_bucket
            return open_place(place, matched["place"], aws)
    if _OTHER_URL.match(place):
        raise UsageError(f"{place}: use a file, sqs:// or s3://", "on_error")
    try:
        file = append_lines(place)
    except OSError as error:
        raise UsageError(f"can't write {place}: {error.strerror}", "on_error") from None
    return DeadLetters(place, lambda _, __, line: file.write(line + b"\n"), file.close)


def _open_queue(name: str, place: str, aws: AwsConfig) -> DeadLetters:
    """Opens an SQS queue by its name, URL or ARN."""
    client, url = open_queue(place, aws.boto3_session())

    def put(record: Record, handler: str, line: bytes) -> None:
        if (size := len(line)) > _SQS_BYTES:
            text = f"this letter has {size:,} bytes, and SQS takes {_SQS_BYTES:,}: use s3://"
            raise WatcherError(text)
        fifo = _fifo_parameters(record, handler) if url.endswith(".fifo") else {}
        client.send_message(QueueUrl=url, MessageBody=line.decode(), **fifo)

    return DeadLetters(name, put, client.close)


def _open_bucket(name: str, place: str, aws: AwsConfig) -> DeadLetters:
    """Opens an S3 bucket: one object per letter; the same letter replaces its object."""
    bucket, _, prefix = place.partition("/")
    if prefix and not prefix.endswith("/"):
        prefix += "/"
    client = aws.boto3_session().client("s3")

    def put(record: Record, handler: str, line: bytes) -> None:
        parts = record.table or "stream", record.shard_id, record.sequence_number.zfill(40)
        key = prefix + "/".join(quote(each, safe="") for each in parts)
        key += f"-{quote(handler, safe='')}.json"
        client.put_object(Bucket=bucket, Key=key, Body=line + b"\n")

    return DeadLetters(name, put, client.close)


def _fifo_parameters(record: Record, handler: str) -> dict[str, str]:
    """Returns FIFO parameters: a shard's letters stay in order, and a repeated one is dropped."""
    shard_key = record.shard_key
    identity = f"{shard_key} {record.sequence_number} {handler}"
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
