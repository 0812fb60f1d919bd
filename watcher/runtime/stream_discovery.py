"""Finds streams that match a watch's globs and tags only later, so that they can join."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from watcher.aws.discovery import Tags, WantedStreams
from watcher.aws.model import StreamName
from watcher.clock import CLOCK, Clock
from watcher.errors import ServiceError, StreamError
from watcher.runtime.timing import STREAMS_TIMING, StreamsTiming
from watcher.runtime.watched_stream import WatchedStream

logger = logging.getLogger("watcher")


class Directory(Protocol):
    """Lists streams and tags; see `aws.client.StreamsClient`."""

    def stream_pages(self) -> Iterator[list[StreamName]]:
        """Yields ListStreams' answers, page by page."""

    def tags(self, table: str) -> Tags:
        """Returns the tags of a table, given its ARN or name."""


class StreamDiscovery:
    """Lists the region's streams repeatedly, one page per call.

    `make_stream` makes the `WatchedStream` of an ARN.
    """

    def __init__(
        self,
        wanted: WantedStreams,
        directory: Directory,
        make_stream: Callable[[str], WatchedStream],
        clock: Clock = CLOCK,
        *,
        timing: StreamsTiming = STREAMS_TIMING,
    ) -> None:
        self._wanted = wanted
        self._directory = directory
        self._make_stream = make_stream
        self._clock = clock
        self._timing = timing
        self._rows: list[StreamName] = []
        self._pages: Iterator[list[StreamName]] | None = None
        self._due = clock.monotonic() + timing.discovery_seconds
        self._tags: dict[str, Tags] = {}
        """The tags of each table, the longest unchecked one first."""

    def find(self) -> list[WatchedStream]:
        """Requests the next page if it is due; returns the matches after the last page."""
        now = self._clock.monotonic()
        if now < self._due:
            return []
        found: list[str] = []
        try:
            self._pages = self._pages or self._directory.stream_pages()
            page = next(self._pages, None)
            self._due = now + self._timing.discovery_page_seconds
            if page is not None:
                self._rows += page
                return []
            found = self._matching()
        except (ServiceError, StreamError) as error:
            logger.debug(f"Can't list the streams to find new ones: {error}")
        self._rows, self._pages = [], None
        self._due = now + self._timing.discovery_seconds
        return list(map(self._make_stream, found))

    def _matching(self) -> list[str]:
        for table in list(itertools.islice(self._tags, self._timing.tags_asked_again)):
            del self._tags[table]
        return [row.arn for row in self._wanted.newest(self._rows, self._tags_of).values()]

    def list_all(self) -> list[StreamName]:
        """Returns all current matches. Raises StreamError, ServiceError."""
        rows = itertools.chain.from_iterable(self._directory.stream_pages())
        return list(self._wanted.newest(rows, self._tags_of).values())

    def _tags_of(self, table: str) -> Tags:
        if table not in self._tags:
            self._tags[table] = self._directory.tags(table)
        return self._tags[table]
