"""Adapts the rate of reads to what other readers leave of those that AWS allows.

AWS allows some five GetRecords a second on a shard, to all of its readers together; a Lambda
function takes four of them. Nothing holds a reader back before its first throttled read: most
shards have a slot to spare, emulators have no such limit, and five pages a second would be far less
than what a shard that is behind can give there. From then on the rate grows by a little with each
read that comes through, and shrinks by a share with each that is throttled, as TCP does it with
what a network can carry.

The figures are for few throttled reads (below 5 %) where five or one a second are to be had, and
for nine tenths of those at least: a tenth less after each throttled read, and the way back in forty
reads. Well above the last limit the steps grow, as somebody else may have left. A rate that nothing
throttles for some minutes at its most was not the limit: then there is none again.
"""

from __future__ import annotations

import math

from watcher.clock import Clock
from watcher.retry import backoff
from watcher.streams.timing import TIMING, Timing


class AdaptiveRateLimit:
    """The rate of one reader."""

    def __init__(self, clock: Clock, *, timing: Timing = TIMING) -> None:
        self._timing = timing
        self._clock = clock
        self._rate: float | None = None  # reads a second; None: as often as there is something
        self._limit = self._timing.reads_per_second_max
        self._step = 0.0
        self._since_throttled = 0
        self.throttled_in_a_row = 0
        """The number of throttled reads in a row."""
        self._began = 0.0

    @property
    def allowed(self) -> float:
        """Reads a second, as far as that is known; else inf."""
        return math.inf if self._rate is None else self._rate

    def on_read(self) -> None:
        """Takes in that a read begins now."""
        self._began = self._clock.monotonic()

    def on_success(self) -> None:
        """Takes in that the read was answered."""
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
        """Takes in that the read was throttled."""
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
        """Seconds until the next read may begin; the longer, the more are refused."""
        if self._rate is None:
            return 0.0
        interval = 1 / self._rate
        if self.throttled_in_a_row > 1:
            interval = backoff(
                self.throttled_in_a_row, interval, self._timing.throttled_seconds_max
            )
        return max(0.0, self._began + interval - self._clock.monotonic())
