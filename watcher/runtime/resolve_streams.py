"""Resolves the given names (ARNs, tables, globs, tags) to the streams of a watch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from watcher.aws.arns import is_stream, parse_name
from watcher.aws.client import StreamsClient
from watcher.aws.connect import Clients
from watcher.aws.discovery import WantedStreams
from watcher.aws.lister import Lister
from watcher.aws.model import Position, TrimHorizon
from watcher.aws.tables import TableItems
from watcher.clock import CLOCK
from watcher.errors import CredentialsError, ServiceError, StreamError
from watcher.formatting import style
from watcher.options import WatchOptions
from watcher.runtime.stream_discovery import StreamDiscovery
from watcher.runtime.watched_stream import LatestMoment, WatchedStream
from watcher.runtime.watched_streams import WatchedStreams

logger = logging.getLogger("watcher")


class _StreamFactory:
    """Makes watched streams over shared clients; with `several`, none waits for another."""

    def __init__(
        self, options: WatchOptions, on_answer: Callable[[], object], *, several: bool
    ) -> None:
        self.clients = Clients(options.connection)
        self._options = options
        self._on_answer = on_answer
        self._several = several
        self._latest = LatestMoment(CLOCK)
        self._listers: dict[StreamsClient, Lister] = {}

    def make(self, arn: str, of_table: bool = True, start: Position | None = None) -> WatchedStream:
        """Makes the watched stream of this ARN."""
        patient, client = self.clients.client_for(arn), self.clients.loop_client_for(arn)
        items = TableItems(self._options.connection, arn, client.table)
        return WatchedStream(
            arn,
            self._options,
            service=self._lister(client),
            # A slow handler keeps the loop from a soon retry of the listing.
            first_service=self._lister(patient) if self._several else patient,
            of_table=of_table,
            start=start,
            items=items,
            latest=self._latest,
        )

    def _lister(self, client: StreamsClient) -> Lister:
        if client not in self._listers:
            self._listers[client] = Lister(client, self._on_answer)
        return self._listers[client]

    def make_discovered(self, arn: str) -> WatchedStream:
        """Makes the watched stream of a table found later: all its records are new."""
        return self.make(arn, start=TrimHorizon())


def resolve(
    wanted: WantedStreams,
    options: WatchOptions,
    *,
    on_answer: Callable[[], object] = lambda: None,
) -> WatchedStreams:
    """Returns the streams of a watch, whose background calls call `on_answer` when answered.

    A name without a stream, or a glob without a match, is an error if it is the only one; else it
    is logged. Raises StreamError.
    """
    factory = _StreamFactory(options, on_answer, several=wanted.are_several)
    found: dict[str, WatchedStream] = {}
    missing: dict[str, StreamError] = {}
    for name in wanted.names:
        try:
            arn = factory.clients.resolved(name)
        except CredentialsError:
            raise
        except StreamError as error:
            if not wanted.are_several or parse_name(name) is None:
                raise
            missing[name] = error
            continue
        # Named by its ARN and by its table, it goes on with the table's next stream.
        of_table = not is_stream(name) or (arn in found and found[arn].of_table)
        found[arn] = factory.make(arn, of_table)
    discoveries = [
        StreamDiscovery(
            part, factory.clients.loop_client_for(part.globs[0]), factory.make_discovered
        )
        for part in wanted.by_region()
    ]
    if discoveries:
        for arn in _matching(wanted, discoveries):
            if arn not in found:
                found[arn] = factory.make(arn)
    if not found:
        raise next(iter(missing.values()), None) or wanted.nothing_matches(wanted.globs)
    for trouble in missing.values():
        logger.error(f"{trouble}; the others are watched")
    style.show_tables(wanted.are_several, found)
    return WatchedStreams(found.values(), discoveries, missing)


def _matching(wanted: WantedStreams, discoveries: Sequence[StreamDiscovery]) -> list[str]:
    try:
        rows = [row for each in discoveries for row in each.list_all()]
    except ServiceError as error:
        text = f"can't list the streams: {error}"
        raise StreamError(text, about=("endpoint_url", "region")) from error
    if rows:
        logger.info(f"Streams that match {' or '.join(map(repr, wanted.globs))}: {len(rows):,}")
    for glob in wanted.unmatched(rows) if rows or wanted.names else ():
        logger.warning(f"No table with a stream matches {glob!r} now; one that comes is watched")
    return [row.arn for row in rows]
