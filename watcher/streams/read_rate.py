"""Adapts the rate of reads to the share of AWS's limit that other readers leave.

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

from watcher.clock import Clock
from watcher.retry import Backoff
from watcher.streams.timing import TIMING, Timing


class AdaptiveRateLimit:
    """The rate limit of one reader."""

    def __init__(self, clock: Clock, *, timing: Timing = TIMING) -> None:
        self._timing = timing
        self._clock = clock
        self._rate: float | None = None  # reads a second; None: no limit
        self._limit = self._timing.reads_per_second_max
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
        self._rate = min(self._rate + self._step, self._timing.reads_per_second_max)
        if self._rate > self._limit * self._timing.above_limit:
            self._step *= self._timing.step_growth
        if (
            self._since_throttled >= self._timing.reads_until_free
            and self._rate == self._timing.reads_per_second_max
        ):
            self._rate = None

    def on_throttled(self) -> None:
        """Notes that the read was throttled."""
        self.throttled_in_a_row += 1
        if self._rate is None:
            self._rate = self._timing.reads_per_second_first
        else:
            self._limit = self._rate
            share = (
                self._timing.throttled_share
                if self._since_throttled
                else self._timing.throttled_again_share
            )
            self._rate = max(self._rate * share, self._timing.reads_per_second_min)
        self._step = (
            self._limit * (1 - self._timing.throttled_share) / self._timing.reads_to_recover
        )
        self._since_throttled = 0

    def delay(self) -> float:
        """Returns the seconds until the next read may begin: more after each throttled one."""
        if self._rate is None:
            return 0.0
        interval = 1 / self._rate
        if self.throttled_in_a_row > 1:
            longest = self._timing.throttled_seconds_max
            growing = Backoff(first_seconds=interval, longest_seconds=longest)
            interval = growing.after(self.throttled_in_a_row)
        return max(0.0, self._began + interval - self._clock.monotonic())
