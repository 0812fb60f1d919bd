"""From what a user names to a client: which stream is meant, and clients for each use."""

from __future__ import annotations

import re

from watcher.errors import ServiceError, StreamError
from watcher.service.client import StreamsClient
from watcher.service.connection import Connection
from watcher.service.credentials import Credentials
from watcher.service.patience import patiently
from watcher.service.tally import Tally

_ARN = re.compile(
    r"arn:(?P<partition>[\w-]+):dynamodb:(?P<region>[\w-]*):(?P<account>\d*):table/"
    r"(?P<table>[\w.-]{1,255})(?:/stream/(?P<label>[\w:.-]+))?"
)
_TABLE = re.compile(r"[\w.-]{3,255}")
_READ_SECONDS_LOOP = 3


def for_worker(
    connection: Connection, arn: str, credentials: Credentials | None = None
) -> StreamsClient:
    """A client for reading shards: their reader tries again by itself, and knows for how long.

    `credentials` where those of another process are to be used, not the program's own.
    """
    streams = StreamsClient(connection, region_in(arn), attempts=1, credentials=credentials)
    streams.take_shortcut(arn)
    return streams


def for_loop(connection: Connection, arn: str, tally: Tally) -> StreamsClient:
    """A client for a loop with more to do: one attempt, and no long waiting for it."""
    streams = StreamsClient(connection, region_in(arn), attempts=1, read_seconds=_READ_SECONDS_LOOP)
    streams.tally = tally
    return streams


def region_in(arn: str) -> str:
    """The region that an ARN names."""
    return arn.split(":")[3]


def connect(text: str, connection: Connection) -> tuple[StreamsClient, str]:
    """A client for the stream that `text` names (stream ARN, table ARN, table name), and its ARN.

    Raises StreamError where there is no such stream, or no way to it.
    """
    arn = _ARN.fullmatch(text)
    if arn is None and (not _TABLE.fullmatch(text) or text.startswith("arn:")):
        raise StreamError(
            f"{text!r} is neither a stream ARN, nor a table ARN, nor a table name; "
            "see: python -m watcher streams"
        )
    streams = StreamsClient(connection, arn["region"] if arn else None)
    if arn and arn["label"]:
        return streams, text
    table = arn["table"] if arn else text
    try:
        return streams, patiently(lambda: streams.latest_stream(table))
    except ServiceError as error:
        raise StreamError(str(error)) from error
