"""Finds streams that match a watch's globs and tags only later, so that they can join."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from watcher.aws.client import StreamsClient
from watcher.aws.discovery import Tags, WantedStreams
from watcher.aws.model import StreamName
from watcher.aws.retry import retry_at_start
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock
from watcher.errors import DeniedError, ServiceError, StreamError
from watcher.retry import worth_logging
from watcher.runtime.watched_stream import WatchedStream

logger = logging.getLogger("watcher")

# The delay between searches of the region for new streams.
_SEARCH_SECONDS = 30.0
# The delay between two pages of ListStreams: AWS allows an account 5 calls a second.
_PAGE_SECONDS = 1.0
# The number of tables whose tags are listed without a pause, and the pause before each other one:
# AWS allows an account 10 calls a second.
_TAGS_AT_ONCE = 10
_TAGS_SECONDS = 0.1
# The number of tables without the wanted tags that each search checks again.
_TAGS_ASKED_AGAIN = 10


class StreamDiscovery:
    """Lists the region's streams repeatedly, in a thread: the loop waits for no answer.

    `make_stream` makes the `WatchedStream` of an ARN. A table that refuses its tags is left out.
    """

    def __init__(
        self,
        wanted: WantedStreams,
        directory: StreamsClient,
        make_stream: Callable[[str], WatchedStream],
        clock: Clock = CLOCK,
        *,
        calls: CallPool | None = None,
    ) -> None:
        self.failing_since = math.inf
        """The (monotonic) time of the first of the last searches that failed; infinite: none."""
        self._wanted = wanted
        self._directory = directory
        self._make_stream = make_stream
        self._clock = clock
        self._calls = calls or CallPool(most=1)
        self._failures = 0
        self._search: Future[list[str]] | None = None
        self._due = clock.monotonic() + _SEARCH_SECONDS
        self._tags: dict[str, Tags] = {}
        """The tags of each table, the longest unchecked one first."""
        self._refused: dict[str, DeniedError] = {}
        """The tables whose tags may not be listed."""

    def find(self) -> list[WatchedStream]:
        """Starts a search if one is due; returns the matches of one that has just ended."""
        now = self._clock.monotonic()
        if self._search is None:
            if now < self._due:
                return []
            (self._search,) = self._calls.start([self._matching], few=0)
        if not self._search.done():
            return []
        search, self._search = self._search, None
        self._due = now + _SEARCH_SECONDS
        try:
            found = search.result()
        except (ServiceError, StreamError) as error:
            self._on_failure(error, now)
            return []
        self._failures, self.failing_since = 0, math.inf
        return list(map(self._make_stream, found))

    def _on_failure(self, error: Exception, now: float) -> None:
        self._failures += 1
        self.failing_since = min(self.failing_since, now)
        if worth_logging(self._failures, 2):
            logger.warning(f"Can't list the streams to find new ones, trying again: {error}")

    def _matching(self) -> list[str]:
        rows = list[StreamName]()
        for page in self._directory.stream_pages():
            rows += page
            self._clock.sleep(_PAGE_SECONDS)
        for table in list(itertools.islice(self._tags, _TAGS_ASKED_AGAIN)):
            del self._tags[table]
        return [row.arn for row in self._wanted.newest(rows, self._tags_of).values()]

    def list_all(self) -> list[StreamName]:
        """Returns all current matches. Raises StreamError, ServiceError."""
        rows = itertools.chain.from_iterable(self._directory.stream_pages())
        found = list(self._wanted.newest(rows, self._tags_of).values())
        if not found and self._refused:
            raise next(iter(self._refused.values()))
        return found

    def _tags_of(self, table: str) -> Tags:
        if table in self._tags:
            return self._tags[table]
        if len(self._tags) >= _TAGS_AT_ONCE:
            self._clock.sleep(_TAGS_SECONDS)
        try:
            tags = retry_at_start(partial(self._directory.tags, table), self._clock)
        except DeniedError as error:
            tags = {}
            if table not in self._refused:
                self._refused[table] = error
                logger.warning(f"{table} is left out, as its tags may not be listed: {error}")
        self._tags[table] = tags
        return tags
