"""Reads the messages of a Lambda event source mapping's destination on failure: ranges of shards.

https://docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import msgspec

from watcher.aws.arns import is_stream
from watcher.aws.model import ShardKey

_Number = Annotated[str, msgspec.Meta(pattern="^[0-9]{1,60}$")]
_Time = Annotated[datetime, msgspec.Meta(tz=True)]
_NESTED = 8  # an SNS envelope in a message in the aws CLI's output has four


class FailedBatch(msgspec.Struct, frozen=True):
    """The range of one shard's records on which a function failed; it holds no records."""

    stream: str = msgspec.field(name="streamArn")
    shard_id: str = msgspec.field(name="shardId")
    first: _Number = msgspec.field(name="startSequenceNumber")
    last: _Number = msgspec.field(name="endSequenceNumber")
    size: int = msgspec.field(name="batchSize", default=0)
    """The number of records that the function got; the range may hold others too."""
    since: _Time | None = msgspec.field(name="approximateArrivalOfFirstRecord", default=None)
    until: _Time | None = msgspec.field(name="approximateArrivalOfLastRecord", default=None)

    def __post_init__(self) -> None:
        if not is_stream(self.stream):
            raise ValueError(f"{self.stream!r} is not a DynamoDB stream's ARN")
        if int(self.first) > int(self.last):
            raise ValueError(f"it begins at {self.first}, behind its end {self.last}")

    @property
    def shard_key(self) -> ShardKey:
        """The shard of the range."""
        return ShardKey(self.stream, self.shard_id)

    def __str__(self) -> str:
        return f"{self.shard_key.table}, shard {self.shard_id}, {self.first} to {self.last}"


class UnreadableMessage(msgspec.Struct, frozen=True):
    """A message that names no range, and the reason."""

    reason: str


def failed_batches(text: str) -> Iterator[FailedBatch | UnreadableMessage]:
    """Yields the ranges that messages name: JSON documents, one after another or a line each.

    A message may be in an SNS envelope, or in the output of `aws sqs receive-message`.
    """
    decoder, place = json.JSONDecoder(), 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        try:
            document, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            line_end = text.find("\n", place)
            place = len(text) if line_end < 0 else line_end
            yield UnreadableMessage(f"no JSON: {error}")
        else:
            yield from _in(document)


def _in(document: object, depth: int = 0) -> Iterator[FailedBatch | UnreadableMessage]:
    """Yields the ranges of a message inside what SQS, SNS and the aws CLI put around it."""
    match document:
        case _ if depth > _NESTED:
            yield UnreadableMessage("one message is in another, and so on")
        case str():
            try:
                yield from _in(json.loads(document), depth + 1)
            except (ValueError, RecursionError) as error:
                yield UnreadableMessage(f"no JSON: {error}")
        case list():
            for each in document:
                yield from _in(each, depth + 1)
        case {"DDBStreamBatchInfo": batch}:
            yield _read(batch)
        case (
            {"Messages": list(inner)} | {"Body": inner} | {"Type": "Notification", "Message": inner}
        ):
            yield from _in(inner, depth + 1)
        case _:
            yield UnreadableMessage("it has no DDBStreamBatchInfo")


def _read(batch: object) -> FailedBatch | UnreadableMessage:
    try:
        return msgspec.convert(batch, FailedBatch)
    except msgspec.ValidationError as error:
        return UnreadableMessage(str(error))
