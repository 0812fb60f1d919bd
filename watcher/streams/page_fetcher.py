"""A shard's reads: one after the other, as often as is allowed, the next sent ahead of its turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from watcher.aws.model import Service
from watcher.clock import Clock
from watcher.errors import TransientError
from watcher.records import page
from watcher.streams.rate_limit import AdaptiveRateLimit

FULL_BYTES = 500_000
"""A full page is about 1 MB; from here on more is likely to follow at once."""
_FULL_RECORDS = 500  # … or 1,000 records
# What was answered ahead is so long as good as an answer of now; and a page without a record is
# smaller than this.
_FRESH_SECONDS = 0.1
_EMPTY_BYTES = 2_000


def is_full(records: int, size: int) -> bool:
    """Whether a page with so many records, and bytes, is one that more is likely to follow."""
    return records >= _FULL_RECORDS or size >= FULL_BYTES


class PageFetcher:
    """Asks for a shard's pages, one at a time."""

    def __init__(
        self, clock: Clock, rate: AdaptiveRateLimit | None = None, *, asks_ahead: bool = True
    ) -> None:
        self.rate = rate or AdaptiveRateLimit(clock)
        """How often that may be."""
        self._clock = clock
        self._asks_ahead = asks_ahead
        self._ahead: tuple[str, Callable[[], bytes] | None] = "", None
        self._asked_at = 0.0

    def page(self, streams: Service, iterator: str) -> bytes:
        """A page's body. Raises as `Service.records`."""
        (asked, answer), self._ahead = self._ahead, ("", None)
        read = partial(streams.records, iterator)
        if asked != iterator or answer is None:
            return self._answered(read)
        body = self._answered(answer)
        is_fresh = self._clock.monotonic() - self._asked_at < _FRESH_SECONDS
        if is_fresh or len(body) >= _EMPTY_BYTES or self.rate.pause():
            return body
        return self._answered(read)  # something may have been written since

    def _answered(self, answer: Callable[[], bytes]) -> bytes:
        self.rate.begin()
        try:
            body = answer()
        except TransientError as error:
            if error.throttled:
                self.rate.throttled()
            raise
        self.rate.came_through()
        return body

    def aside(self, streams: Service, iterator: str, limit: int | None = None) -> bytes:
        """A page from elsewhere in the shard. Raises as `Service.records`."""
        return self._answered(partial(streams.records, iterator, limit))

    def ask_ahead(self, streams: Service, body: bytes) -> None:
        """A shortcut: behind a full page, ask for the next before this one is taken apart.

        Only where that read would begin at once anyway. Whatever comes of it is kept for `page`;
        if that asks for something else, it was in vain.
        """
        if self._asks_ahead and len(body) >= FULL_BYTES and not self.rate.pause():
            following = page.next_iterator(body)
            if following is not None:
                self._asked_at = self._clock.monotonic()
                self._ahead = following, streams.ask(following)

    @property
    def refused(self) -> int:
        """How many of the last reads, one after the other, came too early."""
        return self.rate.in_a_row

    def pause(self) -> float:
        """Seconds until the next read may begin."""
        return self.rate.pause()
