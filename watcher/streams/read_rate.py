"""Fetches a shard's pages, at a rate that adapts to the share of AWS's limit that others leave.

AWS allows about five GetRecords a second on a shard to all its readers together; a Lambda function
takes four of them. A reader is not limited before its first throttled read: most shards have reads
to spare, and emulators, without such a limit, give far more than five pages a second of a backlog.
After that the rate grows a little with each successful read, and shrinks by a share with each
throttled one, as TCP adapts to a network.

The constants aim at few throttled reads (below 5 %) and at least nine tenths of the available rate,
whether that is one or five reads a second: a tenth less after each throttled read, recovered in
forty reads. Well above the last limit the steps grow, as another reader may have left. After some
minutes at the largest rate without a throttled read, the limit is lifted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from watcher.aws.model import Service
from watcher.clock import Clock
from watcher.errors import TransientError
from watcher.records import page
from watcher.retry import Backoff

_READS_PER_SECOND_MAX = 5.0
"""The reads that AWS allows to all readers of a shard together."""
_ABOVE_LIMIT = 1.05
"""The multiple of the last limit from which the rate grows faster.

Another reader may have left.
"""
_STEP_GROWTH = 1.1
"""The growth of each step above that."""
_READS_UNTIL_FREE = 1500
"""The number of reads without a throttled one after which the limit is lifted."""
_READS_PER_SECOND_FIRST = 2.5
"""The rate after the first throttled read."""
_THROTTLED_SHARE = 0.9
"""The share of the rate that is left after a throttled read."""
_THROTTLED_AGAIN_SHARE = 0.5
"""The share that is left after a second throttled read in a row."""
_READS_PER_SECOND_MIN = 0.8
"""The slowest rate, however many other readers there are."""
_READS_TO_RECOVER = 40
"""The number of reads in which the rate climbs back to the last limit."""
_THROTTLED_SECONDS_MAX = 10.0
"""The longest delay between throttled reads in a row."""
_PREFETCHED_SECONDS = 0.1
"""The age up to which a prefetched answer is as good as a new one."""
_EMPTY_PAGE_BYTES = 2_000
"""The size that every page with a record exceeds."""

# Facts of the service.
FULL_BYTES = 500_000
"""Half the size of a full page (1 MB), from which more records are likely to follow at once."""
FULL_RECORDS = 500
"""Half the records of a full page (1,000), from which more are likely to follow at once."""


class AdaptiveRateLimit:
    """The rate limit of one reader."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rate: float | None = None  # reads a second; None: no limit
        self._limit = _READS_PER_SECOND_MAX
        self._step = 0.0
        self._since_throttled = 0
        self.throttled_in_a_row = 0
        """The number of throttled reads in a row."""
        self._began = 0.0

    @property
    def allowed(self) -> float:
        """The allowed reads a second; infinite without a limit."""
        return math.inf if self._rate is None else self._rate

    def on_read(self) -> None:
        """Notes that a read begins now."""
        self._began = self._clock.monotonic()

    def on_success(self) -> None:
        """Notes that the read succeeded."""
        self.throttled_in_a_row = 0
        if self._rate is None:
            return
        self._since_throttled += 1
        self._rate = min(self._rate + self._step, _READS_PER_SECOND_MAX)
        if self._rate > self._limit * _ABOVE_LIMIT:
            self._step *= _STEP_GROWTH
        if self._since_throttled >= _READS_UNTIL_FREE and self._rate == _READS_PER_SECOND_MAX:
            self._rate = None

    def on_throttled(self) -> None:
        """Notes that the read was throttled."""
        self.throttled_in_a_row += 1
        if self._rate is None:
            self._rate = _READS_PER_SECOND_FIRST
        else:
            self._limit = self._rate
            share = _THROTTLED_SHARE if self._since_throttled else _THROTTLED_AGAIN_SHARE
            self._rate = max(self._rate * share, _READS_PER_SECOND_MIN)
        self._step = self._limit * (1 - _THROTTLED_SHARE) / _READS_TO_RECOVER
        self._since_throttled = 0

    def delay(self) -> float:
        """Returns the seconds until the next read may begin: more after each throttled one."""
        if self._rate is None:
            return 0.0
        interval = 1 / self._rate
        if self.throttled_in_a_row > 1:
            longest = _THROTTLED_SECONDS_MAX
            growing = Backoff(first_seconds=interval, longest_seconds=longest)
            interval = growing.after(self.throttled_in_a_row)
        return max(0.0, self._began + interval - self._clock.monotonic())


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
        if self._prefetches and len(body) >= FULL_BYTES and not self.rate.delay():
            following = page.next_iterator(body)
            if following is not None:
                self._prefetched_at = self._clock.monotonic()
                self._prefetched = following, service.prefetch_records(following)
