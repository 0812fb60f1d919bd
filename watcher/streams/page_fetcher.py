"""Fetches a shard's pages one at a time, within the rate limit, and prefetches the next one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from watcher.aws.model import Service
from watcher.clock import Clock
from watcher.errors import TransientError
from watcher.records import page
from watcher.streams.read_rate import AdaptiveRateLimit

_PREFETCHED_SECONDS = 0.1
"""The age up to which a prefetched answer is as good as a new one."""
_EMPTY_PAGE_BYTES = 2_000
"""The size that every page with a record exceeds."""

# Facts of the service.
FULL_BYTES = 500_000
"""Half the size of a full page (1 MB), from which more records are likely to follow at once."""
FULL_RECORDS = 500
"""Half the records of a full page (1,000), from which more are likely to follow at once."""


def is_full(records: int, size: int) -> bool:
    """True for a page with so many records or bytes that more are likely to follow at once."""
    return records >= FULL_RECORDS or size >= FULL_BYTES


class PageFetcher:
    """Fetches one shard's pages, as often as `rate` allows.

    With `prefetches` it requests the page after a full one while the reader handles that.
    """

    def __init__(
        self,
        clock: Clock,
        rate: AdaptiveRateLimit | None = None,
        *,
        prefetches: bool = True,
    ) -> None:
        self.rate = rate or AdaptiveRateLimit(clock)
        self._clock = clock
        self._prefetches = prefetches
        self._prefetched: tuple[str, Callable[[], bytes] | None] = "", None
        self._prefetched_at = 0.0

    def fetch(self, iterator: str, service: Service) -> bytes:
        """Returns a page's body. Raises as `StreamsClient.get_records`."""
        (prefetched_iterator, prefetched), self._prefetched = self._prefetched, ("", None)
        if prefetched_iterator != iterator or prefetched is None:
            return self.fetch_at(iterator, service)
        body = self._counted(prefetched)
        is_fresh = self._clock.monotonic() - self._prefetched_at < _PREFETCHED_SECONDS
        if is_fresh or len(body) >= _EMPTY_PAGE_BYTES or self.rate.delay():
            return body
        # A record may have been written since.
        return self.fetch_at(iterator, service)

    def fetch_at(self, iterator: str, service: Service, limit: int | None = None) -> bytes:
        """Returns a page at another iterator. Raises as `StreamsClient.get_records`."""
        return self._counted(partial(service.get_records, iterator, limit))

    def _counted(self, read: Callable[[], bytes]) -> bytes:
        self.rate.on_read()
        try:
            body = read()
        except TransientError as error:
            if error.throttled:
                self.rate.on_throttled()
            raise
        self.rate.on_success()
        return body

    def prefetch(self, body: bytes, service: Service) -> None:
        """Requests the page after a full one, before that one is decoded.

        Only where the rate limit allows that read at once. `fetch` returns the answer, or drops it
        for another iterator.
        """
        if self._prefetches and len(body) >= FULL_BYTES:
            following = page.next_iterator(body)
            if following is not None:
                self.send_ahead(following, service)

    def send_ahead(self, iterator: str, service: Service) -> None:
        """Requests the page at this iterator; the next `fetch` waits for its answer.

        Only where the rate limit allows that read at once, and once for each page.
        """
        if self._prefetched[0] != iterator and not self.rate.delay():
            self._prefetched_at = self._clock.monotonic()
            self._prefetched = iterator, service.prefetch_records(iterator)

    @property
    def throttled_in_a_row(self) -> int:
        """The number of throttled reads in a row."""
        return self.rate.throttled_in_a_row

    def delay(self) -> float:
        """Returns the seconds until the next read may begin."""
        return self.rate.delay()
