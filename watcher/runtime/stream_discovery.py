"""Streams that have come to match what a watch was asked for, since it began."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from watcher.aws.discovery import Tags, WantedStreams
from watcher.aws.model import StreamName
from watcher.clock import CLOCK, Clock
from watcher.errors import ServiceError, StreamError
from watcher.runtime.watched_stream import WatchedStream

logger = logging.getLogger("watcher")

_LOOK_SECONDS = 30.0
# ListStreams allows 5 calls a second, shared with everybody else, and the delivery waits for each.
_PAGE_SECONDS = 1.0
# So many tables whose tags were no match are asked again each time.
_ASKED_AGAIN = 10


class Directory(Protocol):
    """What is asked here; see `service.client.StreamsClient`."""

    def stream_pages(self) -> Iterator[list[StreamName]]:
        """ListStreams' answers, page by page."""

    def tags(self, table: str) -> Tags:
        """The tags of a table, by its ARN or its name."""


class StreamDiscovery:
    """Lists the region's streams again and again, a page at a time.

    `follow` makes what follows a stream, by its ARN.
    """

    def __init__(
        self,
        wanted: WantedStreams,
        directory: Directory,
        follow: Callable[[str], WatchedStream],
        clock: Clock = CLOCK,
    ) -> None:
        self._wanted = wanted
        self._directory = directory
        self._follow = follow
        self._clock = clock
        self._rows: list[StreamName] = []
        self._pages: Iterator[list[StreamName]] | None = None
        self._due = clock.monotonic() + _LOOK_SECONDS
        self._tags: dict[str, Tags] = {}
        """Of the tables that were asked for theirs, the latest last."""

    def look(self) -> list[WatchedStream]:
        """What matches, once the last page has come; most often nothing, as it is not due."""
        now = self._clock.monotonic()
        if now < self._due:
            return []
        found: list[str] = []
        try:
            self._pages = self._pages or self._directory.stream_pages()
            page = next(self._pages, None)
            self._due = now + _PAGE_SECONDS
            if page is not None:
                self._rows += page
                return []
            found = self._matching()
        except (ServiceError, StreamError) as error:
            logger.debug(f"Can't list the streams to find new ones: {error}")
        self._rows, self._pages = [], None
        self._due = now + _LOOK_SECONDS
        return list(map(self._follow, found))

    def _matching(self) -> list[str]:
        for table in list(itertools.islice(self._tags, _ASKED_AGAIN)):
            del self._tags[table]
        return [row.arn for row in self._wanted.newest(self._rows, self._tags_of).values()]

    def first(self) -> list[StreamName]:
        """All that matches now. Raises StreamError, ServiceError."""
        rows = itertools.chain.from_iterable(self._directory.stream_pages())
        return list(self._wanted.newest(rows, self._tags_of).values())

    def _tags_of(self, table: str) -> Tags:
        if table not in self._tags:
            self._tags[table] = self._directory.tags(table)
        return self._tags[table]
