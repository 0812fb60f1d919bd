"""Clients for several streams: one for each region, and use."""

from __future__ import annotations

from watcher.errors import ServiceError, StreamError
from watcher.service.client import StreamsClient
from watcher.service.connect import connect, for_loop
from watcher.service.connection import Connection
from watcher.service.model import StreamName
from watcher.service.names import parsed, region_in
from watcher.service.wanted_streams import WantedStreams


class Clients:
    """Those of a process, made as they are needed; all of a region count into one tally."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._patient: dict[str | None, StreamsClient] = {}
        self._for_loop: dict[str | None, StreamsClient] = {}

    def directory(self, wanted: WantedStreams) -> StreamsClient:
        """What lists the streams of the region that these globs are of."""
        return self.for_loop(wanted.globs[0])

    def of(self, arn: str) -> StreamsClient:
        """A patient one for an ARN, or for a name."""
        return self._at(region_in(arn))

    def for_loop(self, arn: str) -> StreamsClient:
        """One with a single attempt for each call."""
        region = region_in(arn)
        if region not in self._for_loop:
            self._for_loop[region] = for_loop(self._connection, arn, self._at(region).tally)
        return self._for_loop[region]

    def resolved(self, text: str) -> str:
        """The ARN of the stream that a text names, as `connect` does. Raises StreamError."""
        name = parsed(text)
        region = name.region if name else None
        if region not in self._patient:
            self._patient[region], arn = connect(text, self._connection)
        else:
            arn = connect(text, self._connection, self._patient[region])[1]
        # A name's is the one of its stream's region, too: what it has asked counts there.
        if self._patient[region].region == region_in(arn):
            self._patient.setdefault(region_in(arn), self._patient[region])
        return arn

    def all_of(self, wanted: WantedStreams) -> list[str]:
        """The ARNs of all streams that are wanted. Raises StreamError where some name has none."""
        found = [self.resolved(name) for name in wanted.names]
        rows: list[StreamName] = []
        for part in wanted.by_region():
            client = self.directory(part)
            try:
                rows += part.newest(client.list_streams(), client.tags).values()
            except ServiceError as error:
                text = f"can't list the streams: {error}"
                raise StreamError(text, about=("endpoint_url", "region")) from error
        wanted.refuse_without_match(rows)
        return list(dict.fromkeys([*found, *(row.arn for row in rows)]))

    def close(self) -> None:
        """Close the connections of all."""
        for client in (*self._patient.values(), *self._for_loop.values()):
            client.close()

    def _at(self, region: str | None) -> StreamsClient:
        if region not in self._patient:
            self._patient[region] = StreamsClient(self._connection, region)
        return self._patient[region]
