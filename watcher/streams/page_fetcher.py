"""A shard's pages, one at a time: as often as the service allows, the next one sent for ahead."""

from __future__ import annotations

from collections.abc import Callable

from watcher.clock import Clock
from watcher.errors import TransientError
from watcher.records import page
from watcher.streams.read_rate import AdaptiveRateLimit
from watcher.streams.requests import Collect, GetRecords, Prefetch, ReadSteps
from watcher.streams.timing import TIMING, Timing

# Facts of the service, not choices of ours.
FULL_BYTES = 500_000
"""A full page is about 1 MB; from here on more is likely to follow at once."""
FULL_RECORDS = 500
"""A full page has 1,000 records; from here on more is likely to follow at once."""


def is_full(records: int, size: int) -> bool:
    """True for a page of so many records and bytes that more is likely to follow at once."""
    return records >= FULL_RECORDS or size >= FULL_BYTES


class PageFetcher:
    """Fetches one shard's pages. `rate` is how often that may be.

    With `prefetches` it sends for what follows a full page while that one is being looked at.
    """

    def __init__(
        self,
        clock: Clock,
        rate: AdaptiveRateLimit | None = None,
        *,
        prefetches: bool = True,
        timing: Timing = TIMING,
    ) -> None:
        self._timing = timing
        self.rate = rate or AdaptiveRateLimit(clock, timing=timing)
        self._clock = clock
        self._prefetches = prefetches
        self._prefetched: tuple[str, Callable[[], bytes] | None] = "", None
        self._prefetched_at = 0.0

    def fetch(self, iterator: str) -> ReadSteps[bytes]:
        """Returns a page's body. Raises as `StreamsClient.get_records`."""
        (sent_for, prefetched), self._prefetched = self._prefetched, ("", None)
        if sent_for != iterator or prefetched is None:
            return (yield from self._counted(GetRecords(iterator)))
        body = yield from self._counted(Collect(prefetched))
        is_fresh = self._clock.monotonic() - self._prefetched_at < self._timing.prefetched_seconds
        if is_fresh or len(body) >= self._timing.empty_page_bytes or self.rate.delay():
            return body
        # Something may have been written since.
        return (yield from self._counted(GetRecords(iterator)))

    def fetch_at(self, iterator: str, limit: int | None = None) -> ReadSteps[bytes]:
        """Returns a page from elsewhere in the shard. Raises as `StreamsClient.get_records`."""
        return (yield from self._counted(GetRecords(iterator, limit)))

    def _counted(self, request: GetRecords | Collect) -> ReadSteps[bytes]:
        self.rate.on_read()
        try:
            body: bytes = yield request
        except TransientError as error:
            if error.throttled:
                self.rate.on_throttled()
            raise
        self.rate.on_success()
        return body

    def prefetch(self, body: bytes) -> ReadSteps[None]:
        """Sends for the page after a full one before that one is taken apart.

        Only where that read would begin at once anyway. The answer is kept for `fetch`; where that
        asks for another iterator, the call was in vain.
        """
        if self._prefetches and len(body) >= FULL_BYTES and not self.rate.delay():
            following = page.next_iterator(body)
            if following is not None:
                self._prefetched_at = self._clock.monotonic()
                self._prefetched = following, (yield Prefetch(following))

    @property
    def throttled_in_a_row(self) -> int:
        """The number of throttled reads in a row."""
        return self.rate.throttled_in_a_row

    def delay(self) -> float:
        """Seconds until the next read may begin."""
        return self.rate.delay()
