"""From what a user names to a client: which stream is meant, and clients for each use."""

from __future__ import annotations

from watcher.errors import ServiceError, StreamError
from watcher.service.client import StreamsClient
from watcher.service.connection import Connection
from watcher.service.credentials import Credentials
from watcher.service.names import Name, parsed, region_in
from watcher.service.patience import patiently
from watcher.service.tally import Tally
from watcher.service.wanted_streams import is_glob

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


def understood(text: str) -> Name:
    """What a text names, whether or not that is there. Raises StreamError where it is no name."""
    name = parsed(text)
    if is_glob(text):
        text = f"{text!r} may be several tables, and one is meant; see: python -m watcher streams"
        raise StreamError(text)
    if name is None:
        raise StreamError(
            f"{text!r} is neither a stream ARN, nor a table ARN, nor a table name; "
            "see: python -m watcher streams"
        )
    return name


def connect(
    text: str, connection: Connection, streams: StreamsClient | None = None
) -> tuple[StreamsClient, str]:
    """A client for the stream that `text` names (stream ARN, table ARN, table name), and its ARN.

    `streams` is a client of its region, if there is one already.

    Raises StreamError where there is no such stream, or no way to it.
    """
    name = understood(text)
    streams = streams or StreamsClient(connection, name.region)
    if name.is_stream:
        return streams, text
    try:
        return streams, patiently(lambda: streams.latest_stream(text))
    except ServiceError as error:
        raise StreamError(str(error)) from error
