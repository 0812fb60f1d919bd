"""Creates clients: for several streams, one per region and use."""

from __future__ import annotations

from watcher.aws import deadline
from watcher.aws.arns import Name, parse_name, region_in
from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.counters import Counters
from watcher.aws.credentials import Credentials
from watcher.aws.discovery import is_glob
from watcher.aws.retry import retry_at_start
from watcher.errors import ServiceError, StreamError


class Clients:
    """The clients of a process, created on demand; those of a region share counters."""

    def __init__(self, connection: AwsConfig) -> None:
        self._connection = connection
        self._patient: dict[str | None, StreamsClient] = {}
        self._for_loop: dict[str | None, StreamsClient] = {}

    def client_for(self, arn: str) -> StreamsClient:
        """Returns a client that retries, for an ARN or a name."""
        region = region_in(arn)
        if region not in self._patient:
            self._patient[region] = StreamsClient(self._connection, region)
        return self._patient[region]

    def loop_client_for(self, arn: str) -> StreamsClient:
        """Returns a client with a single attempt for each call."""
        region = region_in(arn)
        if region not in self._for_loop:
            self._for_loop[region] = for_loop(self._connection, arn, self.client_for(arn).counters)
        return self._for_loop[region]

    def resolved(self, text: str) -> str:
        """Returns the ARN of the stream that a text names, as `connect` does.

        Raises StreamError.
        """
        name = parse_name(text)
        region = name.region if name else None
        if region not in self._patient:
            self._patient[region], arn = connect(text, self._connection)
        else:
            arn = connect(text, self._connection, self._patient[region])[1]
        # A name's client becomes the one of the stream's region, so that its calls count there.
        if self._patient[region].region == region_in(arn):
            self._patient.setdefault(region_in(arn), self._patient[region])
        return arn

    def close(self) -> None:
        """Closes all connections."""
        for client in (*self._patient.values(), *self._for_loop.values()):
            client.close()


def for_worker(
    connection: AwsConfig,
    arn: str,
    credentials: Credentials | None = None,
) -> StreamsClient:
    """Returns a client for reading shards, without retries: the shard's reader retries.

    `credentials` are another process's, to be used instead of the program's own.
    """
    streams = StreamsClient(connection, region_in(arn), attempts=1, credentials=credentials)
    streams.prepare(arn)
    return streams


def for_loop(connection: AwsConfig, arn: str, counters: Counters) -> StreamsClient:
    """Returns a client for a loop: one attempt, with a short timeout."""
    streams = StreamsClient(
        connection, region_in(arn), attempts=1, read_seconds=deadline.LOOP_READ_SECONDS
    )
    streams.counters = counters
    return streams


def parse_stream_name(text: str) -> Name:
    """Returns the stream or table that a text names. Raises StreamError for no name."""
    name = parse_name(text)
    if name is None or is_glob(text):
        kind = "neither a stream ARN, nor a table ARN, nor a table name"
        raise StreamError(f"{text!r} is {kind}; see: python -m watcher streams")
    return name


def connect(
    text: str, connection: AwsConfig, streams: StreamsClient | None = None
) -> tuple[StreamsClient, str]:
    """Returns a client, and the ARN of the stream named by `text` (stream or table, ARN or name).

    `streams` is an existing client of its region.

    Raises StreamError where there is no such stream, or no way to it.
    """
    name = parse_stream_name(text)
    streams = streams or StreamsClient(connection, name.region)
    if name.is_stream:
        return streams, text
    try:
        return streams, retry_at_start(lambda: streams.latest_stream(text))
    except ServiceError as error:
        raise StreamError(str(error)) from error
