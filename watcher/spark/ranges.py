"""Reads ranges of shards on an executor."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache

import msgspec

from watcher.errors import DataLossError, TransientError
from watcher.reading.messages import Loss, Message, Page, Trouble
from watcher.reading.shard_reader import ShardReader
from watcher.record import page as pages
from watcher.service.client import StreamsClient
from watcher.service.connection import Connection
from watcher.service.model import Position
from watcher.spark.offsets import Range

logger = logging.getLogger("watcher")

# A watch tries for ever; a task that failed is tried anew by Spark, and the user sees why.
_GIVE_UP_SECONDS = 300.0


class Source(msgspec.Struct, frozen=True):
    """What an executor needs to know of the stream."""

    connection: Connection
    arn: str
    fail_on_data_loss: bool


class Chunk(msgspec.Struct, frozen=True):
    """Records `first:last` of a page."""

    body: bytes
    first: int
    last: int


def read(source: Source, between: Range) -> Iterator[Chunk]:
    """The records of a range, page by page.

    Raises DataLossError where some are gone (or warns), TransientError after minutes of trouble.
    """
    last: str | None = None
    for page in _pages(source, between.shard_id, between.start, None, str(between)):
        chunk, last = _until(page, between.upto)
        if chunk.last > chunk.first:
            yield chunk
        if last == between.upto:
            return
    if between.upto is not None:
        lost(source, f"{between}: it ended at sequence number {last}")


def read_until(source: Source, shard_id: str, start: Position, until: datetime) -> Iterator[Chunk]:
    """The records of a shard from a position on, up to those made at `until`."""
    for page in _pages(source, shard_id, start, until, f"shard {shard_id}"):
        yield Chunk(page.body, page.first, page.last)


def lost(source: Source, what: str) -> None:
    """Raise DataLossError, or warn."""
    text = f"DATA LOSS: {what}"
    if source.fail_on_data_loss:
        raise DataLossError(f"{text}; to go on: failOnDataLoss=false")
    logger.warning(text)


def _pages(
    source: Source, shard_id: str, start: Position, until: datetime | None, name: str
) -> Iterator[Page]:
    reader = ShardReader(
        _streams(source.connection, source.arn), source.arn, shard_id, start, until=until
    )
    trouble_since: float | None = None
    while not reader.finished:
        messages = reader.read()
        for message in messages:
            if isinstance(message, Loss):
                lost(source, f"{name} from {message.since} to what is left ({message.reason})")
            elif isinstance(message, Page):
                yield message
        trouble_since = _in_trouble(messages, trouble_since, name)
        time.sleep(reader.pause)


def _in_trouble(messages: list[Message], since: float | None, name: str) -> float | None:
    """Since when the service has answered nothing but errors."""
    troubles = [message for message in messages if isinstance(message, Trouble)]
    if not troubles:
        return None
    now = time.monotonic()
    if since is not None and now > since + _GIVE_UP_SECONDS:
        raise TransientError(f"{name} can't be read: {troubles[-1].text}")
    return since if since is not None else now


def _until(page: Page, upto: str | None) -> tuple[Chunk, str | None]:
    """What of a page is in a range that ends there, and the number of its last record."""
    first, last, number = page.first, page.last, page.last_sequence_number
    if upto is not None and int(number) > int(upto):
        numbers = [each.dynamodb.SequenceNumber for each in pages.decode(page.body).Records]
        while last > first and int(numbers[last - 1]) > int(upto):
            last -= 1
        number = numbers[last - 1] if last > first else number
    return Chunk(page.body, first, last), number


@lru_cache(maxsize=8)
def _streams(connection: Connection, arn: str) -> StreamsClient:
    """One client for a worker's life: making one takes longer than reading a page."""
    streams = StreamsClient(connection, arn.split(":")[3])
    streams.take_shortcut(arn)
    return streams
